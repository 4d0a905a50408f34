// NCCL's system XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE), in and out.
//
//   <system version="1">
//     <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
//       <pci busid="0000:0d:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">     a switch
//         <pci busid="0000:0f:00.0" class="0x030200" ...>                                           a device
//           <gpu dev="0" sm="90" rank="0" gdr="1"> <nvlink target="0000:1c:00.0" count="5"
//           tclass="0x068000"/> </gpu>
//
// Files are written by people, too: comments and an XML declaration may stand before the root, elements and
// attributes that nobody knows are skipped, any attribute but a <pci>'s busid and an <nvlink>'s target may be
// missing, and hexadecimal digits may have any case.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "topology/description.h"

namespace tutti {

/// What is accepted of a file.
constexpr size_t kSystemXmlMaxBytes = 16u << 20;
constexpr int kSystemXmlMaxDepth = 64;        // elements inside each other
constexpr int kSystemXmlMaxElements = 65536;  // <cpu>, <pci>, <gpu>, <nic>, <net>, <nvlink>, <c2c> together

/// Parses the text of a file; `fileName` is for messages only. Errors (ncclInvalidUsage) name file, line,
/// element, attribute and reason. Handles any bytes: never crashes, never uses more than a small multiple of
/// the text's size.
Result<SystemDescription> parseSystemXml(std::string_view text, std::string_view fileName);

/// Reads and parses a file.
Result<SystemDescription> readSystemXml(const std::string& path);

/// The text of a file that parseSystemXml reads as `system` again, in the form of NCCL's dumps.
std::string systemXmlText(const SystemDescription& system);

}  // namespace tutti
