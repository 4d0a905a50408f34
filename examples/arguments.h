// Numbers from the command line.
#pragma once

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

/// The argument as a number from `least` to `most`; anything else ends the program with a message and
/// status 2.
inline int numberFrom(const char* argument, const char* what, int least, int most) {
  int number = 0;
  const char* const end = argument + std::strlen(argument);
  const auto [stopped, error] = std::from_chars(argument, end, number);
  if (error == std::errc() && stopped == end && number >= least && number <= most) return number;
  std::fprintf(stderr, "%s: \"%s\" is not a number from %d to %d\n", what, argument, least, most);
  std::exit(2);
}
