// The windows of a member's peers; see request_window.h.
#include "cc/collective/request_window.h"

#include <algorithm>
#include <utility>

namespace tfsched {
namespace {

void SortByTurn(std::vector<Message>* messages, int64_t pieces) {
  std::stable_sort(messages->begin(), messages->end(), [pieces](const Message& one, const Message& other) {
    return TurnOf(one, pieces) < TurnOf(other, pieces);
  });
}

}  // namespace

RequestWindow::RequestWindow(std::vector<Message> incoming, int members, int64_t pieces, int64_t element_bytes,
                             int64_t bytes)
    : pieces_(pieces), element_bytes_(element_bytes), bytes_(bytes), peers_(members) {
  SortByTurn(&incoming, pieces);
  for (Message& message : incoming) {
    Peer& peer = peers_[message.peer];
    if (peer.left.empty() && Fits(peer, message)) {
      peer.asked_bytes += BytesOf(message);
      first_.push_back(std::move(message));
    } else {
      peer.left.push_back(std::move(message));
    }
  }
}

std::vector<Message> RequestWindow::First() {
  const MutexLock lock(&mu_);
  return std::move(first_);
}

std::vector<Message> RequestWindow::Arrived(const Message& message) {
  const MutexLock lock(&mu_);
  Peer& peer = peers_[message.peer];
  peer.asked_bytes -= BytesOf(message);
  std::vector<Message> now;
  while (!peer.left.empty() && Fits(peer, peer.left.front())) {
    peer.asked_bytes += BytesOf(peer.left.front());
    now.push_back(std::move(peer.left.front()));
    peer.left.pop_front();
  }
  return now;
}

std::vector<Message> RequestWindow::Rest() {
  const MutexLock lock(&mu_);
  std::vector<Message> rest;
  for (Peer& peer : peers_) {
    for (Message& message : peer.left) {
      peer.asked_bytes += BytesOf(message);
      rest.push_back(std::move(message));
    }
    peer.left.clear();
  }
  SortByTurn(&rest, pieces_);
  return rest;
}

}  // namespace tfsched
