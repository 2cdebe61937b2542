// The rule by which a tensor's way is chosen; see choice.h.
#include "cc/collective/choice.h"

#include <algorithm>
#include <cstdlib>

#include "cc/collective/statements.h"

namespace tfsched {
namespace {

constexpr char kWayWord[] = "algorithm", kPaceWord[] = "~pace_bps", kPieceWord[] = "~piece_bytes", kAuto[] = "auto";

// What a message costs beside its bytes: request, answer and the scheduler's turn, processor time of both ends
// (docs/overhead.md, benchmarks/partition_cost.py).
constexpr double kMessageUs = 30;
// However fast the links, larger tensors are not sent W - 1 times.
constexpr int64_t kMostWhole = 1 << 18;
// How long messages last where nobody says how large pieces are, and the largest; exchange_bytes of tfsched/_rules.py.
constexpr double kMessageLastsUs = 8000;
constexpr int64_t kLargestMessage = 1'000'000;
constexpr int64_t kLeastPart = 250'000;        // a member's part of the smallest pieces, _PART_BYTES there
constexpr int64_t kDefaultCredit = 1'000'000;  // DEFAULT_CREDIT_BYTES there
// Paces that differ by less than this factor are about the same: pieces would be too, or the next larger ones.
constexpr double kAboutPace = 1.33;
// Smaller pieces are no option (MIN_PARTITION_BYTES of tfsched/_rules.py).
constexpr int64_t kLeastPiece = 4096;

int RoundsOfDoubling(int members) {
  int rounds = 0;
  while ((1 << rounds) < members) ++rounds;
  return rounds;
}

// What the slowest member's link carries in the time that a message may last.
double FittingBytes(const Conditions& conditions) {
  return kMessageLastsUs * static_cast<double>(conditions.pace_bps) / 8e6;
}

}  // namespace

std::string WordsOf(const Conditions& own) {
  return std::string(kWayWord) + "=" + (own.way ? NameOf(*own.way) : kAuto) + " " + kPaceWord + "=" +
         std::to_string(own.pace_bps) +
         (own.piece_bytes > 0 ? std::string(" ") + kPieceWord + "=" + std::to_string(own.piece_bytes) : "");
}

Conditions CommonConditions(const std::vector<std::string>& said) {
  Conditions common;
  for (size_t member = 0; member < said.size(); ++member) {
    const auto words = WordsOfStatement(said[member]);
    const auto way = words.find(kWayWord), pace = words.find(kPaceWord);
    if (way != words.end()) common.way = WayNamed(way->second);
    const int64_t bps = pace == words.end() ? 0 : std::strtoll(pace->second.c_str(), nullptr, 10);
    common.pace_bps = member == 0 ? bps : std::min(common.pace_bps, bps);
    const auto piece = words.find(kPieceWord);
    const int64_t bytes = piece == words.end() ? 0 : std::strtoll(piece->second.c_str(), nullptr, 10);
    if (common.piece_bytes == 0 && bytes > 0) common.piece_bytes = std::max(bytes, kLeastPiece);
  }
  common.pace_bps = std::max<int64_t>(common.pace_bps, 0);
  return common;
}

// With a us a message and b bytes a us, a tensor of n bytes keeps a member's link busy for
//
//   direct      2 (W - 1) a + 2 (W - 1) / W n / b
//   everybody     (W - 1) a +       (W - 1) n / b        one round
//   doubling  ceil(log2 W) a +      (W - 1) n / b        ceil(log2 W) rounds
//   ring        as direct                                2 (W - 1) rounds
//
// so a tensor goes whole while n <= a b W m / ((W - 1) (W - 2)), where m is how many messages that saves. Doubling takes the
// place of everybody where it halves the messages: its rounds wait for each other. By this count the ring never
// wins.
Way Choose(int members, int64_t bytes, int64_t whole_bytes, const Conditions& conditions) {
  if (conditions.way) return *conditions.way;
  if (members <= 2) return Way::kEverybody;
  const int peers = members - 1, rounds = RoundsOfDoubling(members);
  const Way whole = 2 * rounds <= peers ? Way::kDoubling : Way::kEverybody;
  if (conditions.pace_bps > 0) {
    const int saved = 2 * peers - (whole == Way::kDoubling ? rounds : peers);
    const double bytes_a_message = kMessageUs * static_cast<double>(conditions.pace_bps) / 8e6;
    const double most = bytes_a_message * members * saved / (peers * (members - 2.0));
    whole_bytes = static_cast<int64_t>(std::min(most, static_cast<double>(kMostWhole)));
  }
  return bytes <= whole_bytes ? whole : Way::kDirect;
}

int64_t MessageBytes(Way way, int members, int64_t piece_bytes) {
  return way == Way::kDirect || way == Way::kRing ? piece_bytes / std::max(members, 1) : piece_bytes;
}

int64_t PieceBytes(Way way, int members, int64_t graph_bytes, bool follow_link, const Conditions& conditions) {
  if (way == Way::kRing) return graph_bytes;
  if (conditions.piece_bytes > 0) return conditions.piece_bytes;
  if (!follow_link) return graph_bytes;
  int64_t message = MessageBytes(way, members, graph_bytes), times = 1;
  const double fits = FittingBytes(conditions);
  while (message > 0 && 2 * message <= kLargestMessage && fits >= 1.5 * static_cast<double>(message)) {
    message *= 2;
    times *= 2;
  }
  return times * graph_bytes;
}

int64_t FittingCredit(int64_t message_bytes, int members, const Conditions& conditions) {
  const Way way = members <= 2 ? Way::kEverybody : Way::kDirect;
  const int64_t fits = PieceBytes(way, members, kLeastPart * std::max(members, 2), true, conditions);
  return std::max(kDefaultCredit, 2 * std::min(message_bytes, MessageBytes(way, members, fits)));
}

int64_t RequestWindowBytes(Way way, int members, int64_t answer_us, const Conditions& conditions) {
  if (way != Way::kDirect || members <= 2 || conditions.pace_bps <= 0 || answer_us <= 0) return 0;
  const double us = kMessageLastsUs + static_cast<double>(answer_us);
  return std::max<int64_t>(static_cast<int64_t>(us * static_cast<double>(conditions.pace_bps) / 8e6), 1);
}

bool IsAtPace(int64_t bytes, int64_t us, int64_t pace_bps) {
  const double share =
      static_cast<double>(bytes) * 8e6 / (static_cast<double>(pace_bps) * static_cast<double>(std::max<int64_t>(us, 1)));
  return share > 1 / kAboutPace && share < kAboutPace;
}

}  // namespace tfsched
