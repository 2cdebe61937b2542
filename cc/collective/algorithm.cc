// The ways by name; see algorithm.h.
#include "cc/collective/algorithm.h"

namespace tfsched {

const char* NameOf(Way way) {
  switch (way) {
    case Way::kDirect:
      return "direct";
    case Way::kEverybody:
      return "everybody";
    case Way::kDoubling:
      return "doubling";
    case Way::kRing:
      return "ring";
  }
  return "";
}

std::optional<Way> WayNamed(const std::string& name) {
  for (const Way way : {Way::kDirect, Way::kEverybody, Way::kDoubling, Way::kRing}) {
    if (name == NameOf(way)) return way;
  }
  return std::nullopt;
}

std::unique_ptr<Algorithm> MakeAlgorithm(Way way, const Layout& layout, int me) {
  switch (way) {
    case Way::kDirect:
      return MakeDirect(layout, me);
    case Way::kEverybody:
      return MakeEverybody(layout, me);
    case Way::kDoubling:
      return MakeDoubling(layout, me);
    case Way::kRing:
      return MakeRing(layout, me);
  }
  return nullptr;
}

}  // namespace tfsched
