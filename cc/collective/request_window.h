// Which messages of a tensor a member asks its peers for, and when.
#ifndef TFSCHED_CC_COLLECTIVE_REQUEST_WINDOW_H_
#define TFSCHED_CC_COLLECTIVE_REQUEST_WINDOW_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "cc/collective/algorithm.h"
#include "cc/core/mutex.h"
#include "cc/core/thread_annotations.h"

namespace tfsched {

// A member asks each peer for its messages in the order in which they leave there, and for no more than `bytes` at a time.
// A peer that is asked for all at once fills the buffers of its connections. Then TCP says which member gets its bytes
// first, some fall behind, and their links are busy alone in the end.
//
// Nobody waits in a circle: a contribution waits only for contributions to the same member, which leave without waiting for
// anything, and a result that is not asked for waits only for messages that have been. Thread safe.
class RequestWindow {
 public:
  // `incoming` is all that will arrive, of a tensor with so many pieces and elements of `element_bytes`. One message is
  // asked for however large it is. bytes = 0: all at once.
  RequestWindow(std::vector<Message> incoming, int members, int64_t pieces, int64_t element_bytes, int64_t bytes);

  // What to ask for at first. Call it once.
  std::vector<Message> First();

  // What to ask for now that `message` has arrived.
  std::vector<Message> Arrived(const Message& message);

  // All that has not been asked for, after First(). Then nothing is left.
  std::vector<Message> Rest();

 private:
  struct Peer {
    std::deque<Message> left;  // not asked for
    int64_t asked_bytes = 0;   // and not arrived
  };

  int64_t BytesOf(const Message& message) const { return message.range.size() * element_bytes_; }
  bool Fits(const Peer& peer, const Message& message) const {
    return bytes_ == 0 || peer.asked_bytes == 0 || peer.asked_bytes + BytesOf(message) <= bytes_;
  }

  const int64_t pieces_, element_bytes_, bytes_;
  Mutex mu_;
  std::vector<Message> first_ TFSCHED_GUARDED_BY(mu_);
  std::vector<Peer> peers_ TFSCHED_GUARDED_BY(mu_);
};

}  // namespace tfsched

#endif  // TFSCHED_CC_COLLECTIVE_REQUEST_WINDOW_H_
