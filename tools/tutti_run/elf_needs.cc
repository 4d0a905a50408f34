#include "tutti_run/elf_needs.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

namespace tutti {
namespace {

/// Reads from the bytes of a file; everything outside them is absent.
class Image {
 public:
  explicit Image(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  std::optional<T> at(uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  std::string text(uint64_t offset) const {
    if (offset >= bytes_.size()) return {};
    const std::string_view rest = bytes_.substr(offset);
    return std::string(rest.substr(0, rest.find('\0')));
  }
  bool contains(std::string_view pattern) const { return bytes_.find(pattern) != std::string_view::npos; }

 private:
  std::string_view bytes_;
};

std::vector<Elf64_Phdr> segments(const Image& image, const Elf64_Ehdr& header) {
  std::vector<Elf64_Phdr> all;
  for (unsigned i = 0; i < header.e_phnum; ++i)
    if (const auto segment = image.at<Elf64_Phdr>(header.e_phoff + uint64_t{i} * sizeof(Elf64_Phdr)))
      all.push_back(*segment);
  return all;
}

/// Where the byte that is loaded at `address` stands in the file.
std::optional<uint64_t> fileOffset(const std::vector<Elf64_Phdr>& all, uint64_t address) {
  for (const Elf64_Phdr& segment : all)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr &&
        address - segment.p_vaddr < segment.p_filesz)
      return segment.p_offset + (address - segment.p_vaddr);
  return std::nullopt;
}

void readDynamic(const Image& image, const std::vector<Elf64_Phdr>& all, ElfNeeds* needs) {
  std::vector<Elf64_Dyn> entries;
  for (const Elf64_Phdr& segment : all) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= segment.p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = image.at<Elf64_Dyn>(segment.p_offset + at);
      if (!entry || entry->d_tag == DT_NULL) break;
      entries.push_back(*entry);
    }
  }
  std::optional<uint64_t> strings;
  bool hasRunpath = false;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_STRTAB) strings = fileOffset(all, entry.d_un.d_ptr);
    if (entry.d_tag == DT_RUNPATH) hasRunpath = true;
  }
  if (!strings) return;
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_NEEDED) needs->libraries.push_back(image.text(*strings + entry.d_un.d_val));
    if (entry.d_tag == DT_RPATH && !hasRunpath) needs->rpath = image.text(*strings + entry.d_un.d_val);
  }
}

std::optional<ElfNeeds> parse(const Image& image) {
  const auto header = image.at<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return std::nullopt;
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) return std::nullopt;
  ElfNeeds needs;
  readDynamic(image, segments(image, *header), &needs);
  bool isShared = false;
  for (const std::string& library : needs.libraries)
    isShared = isShared || library.starts_with("libcudart.so");
  // The static runtime carries its table of error names, and opens the driver by name. A stripped program has
  // no other trace of it.
  needs.hasStaticCudart =
      !isShared && image.contains("cudaErrorMissingConfiguration") && image.contains("libcuda.so.1");
  return needs;
}

}  // namespace

std::optional<ElfNeeds> readElfNeeds(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  struct stat file {};
  void* bytes = MAP_FAILED;
  const bool isMapped = ::fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_size > 0 &&
                        (bytes = ::mmap(nullptr, static_cast<size_t>(file.st_size), PROT_READ, MAP_PRIVATE,
                                        fd, 0)) != MAP_FAILED;
  ::close(fd);
  if (!isMapped) return std::nullopt;
  const auto size = static_cast<size_t>(file.st_size);
  auto needs = parse(Image({static_cast<const char*>(bytes), size}));
  ::munmap(bytes, size);
  return needs;
}

}  // namespace tutti
