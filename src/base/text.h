// Words out of text: lower case, trimming, splitting.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// ASCII letters in lower case, all else as it is.
std::string lower(std::string_view text);
/// The same, without spaces and tabs around it.
std::string lowerTrimmed(std::string_view text);
/// The pieces between separators, views of `text`; one empty piece for an empty text.
std::vector<std::string_view> splitAt(std::string_view text, char separator);

}  // namespace tutti
