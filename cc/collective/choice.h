// Which way a tensor is exchanged: by its size, the number of members, and how fast their links have been.
#ifndef TFSCHED_CC_COLLECTIVE_CHOICE_H_
#define TFSCHED_CC_COLLECTIVE_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cc/collective/algorithm.h"

namespace tfsched {

// What all members of a group know alike when they have agreed on a call.
struct Conditions {
  std::optional<Way> way;  // what the user asks for; nothing: what Choose() says
  int64_t pace_bps = 0;    // of the slowest member's link, in bits per second; 0 if one of them has not measured it
  // Of how many bytes pieces are at most, whatever the graph says; 0: what the graph says. The first member counts that has
  // something to say, so that a tuner, which runs in one of them, changes it for all with the same call.
  int64_t piece_bytes = 0;
};

// A member's own conditions as words of a statement: the way has to be the same on all, others may differ (statements.h).
std::string WordsOf(const Conditions& own);

// The conditions that follow from what all members have said.
Conditions CommonConditions(const std::vector<std::string>& said);

// The way for a tensor of `bytes` among `members`. `whole_bytes`: while no pace is known, a tensor of at most so many goes
// whole to everybody. docs/allreduce-internals.md has the rule's derivation. Whatever it says, the sums have the same bits:
// only who asks for the ring gets other ones.
Way Choose(int members, int64_t bytes, int64_t whole_bytes, const Conditions& conditions);

// The pieces of a tensor that goes this way: what a tuner tries, or the graph's own. If they `follow_link`, these are
// doubled while their messages are nearer to what the slowest member's link carries in 8 ms then, up to messages of 1 MB.
// Around a ring a sum's last bits depend on how the tensor is cut, so there the graph's own pieces stay: settings must not
// change a result.
int64_t PieceBytes(Way way, int members, int64_t graph_bytes, bool follow_link, const Conditions& conditions);

// The bytes of a message of such a piece.
int64_t MessageBytes(Way way, int members, int64_t piece_bytes);

// How many bytes may be on the wire where the graph leaves it to us: two messages, and the default of an option at least. Of
// messages larger than those that fit the link one goes alone: none can be overtaken that is on the wire, and what a plan
// sends whole may be a gradient of hundreds of megabytes.
int64_t FittingCredit(int64_t message_bytes, int members, const Conditions& conditions);

// How many bytes of one tensor a member asks a peer for at a time (request_window.h): what the slowest member's link carries
// in 8 ms, and while an answer is under way (`answer_us`, answer_times.h). 0: all at once, where the links' pace or the
// answers' time is not known, and in the ways in which few send to one at a time.
int64_t RequestWindowBytes(Way way, int members, int64_t answer_us, const Conditions& conditions);

// Whether so many bytes take this long at about that pace. If not, the pace is another one by now, or somebody came late.
bool IsAtPace(int64_t bytes, int64_t us, int64_t pace_bps);

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_CHOICE_H_
