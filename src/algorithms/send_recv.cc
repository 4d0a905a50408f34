#include "algorithms/send_recv.h"

namespace tutti {

Schedule sendRecv(int32_t ranks, int32_t rank, int32_t sender, int32_t receiver, int port) {
  Schedule schedule;
  schedule.name = "p2p";
  schedule.collective = Collective::sendRecv;
  schedule.ranks = ranks;
  schedule.rank = rank;
  schedule.root = sender;
  const Location input{Buffer::input, 0};
  const Location output{Buffer::output, 0};
  if (rank == sender && rank == receiver) {
    schedule.lanes.emplace_back().copy(input, output);
  } else if (rank == sender) {
    schedule.lanes.emplace_back().send(receiver, input, port);
  } else if (rank == receiver) {
    schedule.lanes.emplace_back().recv(sender, output, port);
  }
  return schedule;
}

}  // namespace tutti
