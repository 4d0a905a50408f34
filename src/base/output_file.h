// Files that the library writes for people: dumps.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace tutti {

/// Writes all of `text`; gives 0 or an errno value. EINTR is handled, and SIGPIPE never raised, although the
/// descriptor (standard output, a FIFO) need not be a socket.
int writeWithoutSignal(int fd, std::string_view text);

/// Makes `text` the content of the file: all of it or, when this fails, nothing of it. Whoever reads
/// meanwhile sees the old content or the new one (a temporary file beside it is renamed); symbolic links are
/// followed. What is no regular file (/dev/stdout, a FIFO) is written to, without waiting for a reader.
Status replaceFile(const std::string& path, std::string_view text);

}  // namespace tutti
