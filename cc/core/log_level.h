// Which of tfsched's own log lines are wanted: TFSCHED_LOG_LEVEL, as tfsched/_log.py reads it.
#ifndef TFSCHED_CC_CORE_LOG_LEVEL_H_
#define TFSCHED_CC_CORE_LOG_LEVEL_H_

#include <cctype>
#include <cstdlib>
#include <string>

namespace tfsched {

// Whether warnings are: always, but with the level "error".
inline bool ShowsWarnings() {
  static const bool shows = [] {
    const char* text = std::getenv("TFSCHED_LOG_LEVEL");
    std::string level = text == nullptr ? "" : text;
    for (char& letter : level) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    return level != "error";
  }();
  return shows;
}

}  // namespace tfsched

// A warning in TensorFlow's log; the file that uses it includes tensorflow/core/platform/logging.h.
#define TFSCHED_WARNING              \
  if (!::tfsched::ShowsWarnings()) { \
  } else                             \
    LOG(WARNING) << "tfsched: "

#endif  // TFSCHED_CC_CORE_LOG_LEVEL_H_
