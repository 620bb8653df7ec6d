#include "tessera/comm/ranks/group_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <numeric>
#include <optional>
#include <sstream>

#include "tessera/base/counted.h"
#include "tessera/comm/ranks/direct_collectives.h"
#include "tessera/comm/ranks/message_collectives.h"

namespace tessera {
namespace {

// Exchanges texts among all ranks of the parent group or of the run, while some of them form a new group. Returns the
// texts by rank.
using Exchange = std::function<std::vector<std::string>(std::string_view text)>;
constexpr const char* kForming = "groups to form";

// The members of a new group.
struct Members {
  int rank = 0;                    // of this process in the new group
  std::vector<int> places{};       // for each rank of the new group, its index in the texts of an Exchange
  std::vector<int> world_ranks{};  // for each rank of the new group, its rank in the world

  int size() const { return static_cast<int>(places.size()); }
};

// The numbers that follow each other in a text.
std::vector<int> numbers_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<int> numbers;
  for (int number = 0; stream >> number;) numbers.push_back(number);
  return numbers;
}

std::string text_of(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += std::to_string(number) + " ";
  return text;
}

// Returns the texts of the members, by rank of the new group.
std::vector<std::string> of_members(const Members& members, const std::vector<std::string>& texts) {
  std::vector<std::string> chosen;
  for (const int place : members.places) chosen.push_back(texts[static_cast<size_t>(place)]);
  return chosen;
}

bool all_agree(const Members& members, const Exchange& exchange, bool mine) {
  const std::vector<std::string> texts = of_members(members, exchange(mine ? "1" : "0"));
  return std::all_of(texts.begin(), texts.end(), [](const std::string& text) { return text == "1"; });
}

// A group has two objects. The first one is for streams, the second one for host calls.
using Both = std::vector<std::unique_ptr<Collectives>>;

// Returns two objects that communicate through memory pages shared by the members. If any rank cannot open the pages,
// or cannot read the memory of the other ranks, all members get an empty list.
Both make_direct_collectives(const Members& members, const GroupInfo& group, View scratch, const Exchange& exchange) {
  const int64_t bytes_of_one = DirectCollectives::shared_bytes(group.size());
  std::optional<SharedPages> pages;
  if (group.rank == 0) pages.emplace(SharedPages::create(2 * bytes_of_one));
  // The process that started all ranks of the group, directly or through other processes, is found from the ancestors
  // of all ranks. It does not matter that ids of processes on different nodes cannot be compared: on another node,
  // a rank cannot open the pages.
  const std::string name = pages ? pages->name() : "";
  const std::vector<std::string> texts = of_members(members, exchange(name + "\n" + text_of(ancestors())));
  std::vector<std::vector<pid_t>> chains;
  for (const std::string& text : texts) chains.push_back(numbers_of(text.substr(text.find('\n') + 1)));
  if (group.rank > 0) pages.emplace(SharedPages::open(texts[0].substr(0, texts[0].find('\n')), 2 * bytes_of_one));
  const bool all_have_pages = all_agree(members, exchange, static_cast<bool>(*pages));
  Both both;
  if (all_have_pages) {
    const auto shared = std::make_shared<SharedPages>(std::move(*pages));
    const pid_t launcher = nearest_common(chains);
    both.push_back(std::make_unique<DirectCollectives>(group, shared, 0, scratch, launcher));
    both.push_back(std::make_unique<DirectCollectives>(group, shared, bytes_of_one, View(), launcher));
  }
  exchange("");  // now all ranks have constructed their objects
  const bool can_read = all_have_pages && std::all_of(both.begin(), both.end(), [](const auto& collectives) {
                          return static_cast<DirectCollectives&>(*collectives).can_read_peers();
                        });
  // All ranks of the exchange take part in the next call, because other groups may have their pages.
  if (!all_agree(members, exchange, can_read)) both.clear();
  return both;
}

// Returns two objects that send messages. Without scratch, the group serves only host calls. The first object is then
// empty.
Both make_message_collectives(GroupBasis& basis, const GroupInfo& group, View scratch, int channel) {
  Both both;
  const bool has_streams = scratch.data != nullptr;
  both.push_back(has_streams ? std::make_unique<MessageCollectives>(
                                   group, basis.messenger->open(channel, group.world_ranks), scratch)
                             : nullptr);
  both.push_back(
      std::make_unique<MessageCollectives>(group, basis.messenger->open(channel + 1, group.world_ranks), View()));
  return both;
}

std::unique_ptr<Communicator> make_group_of(GroupBasis& basis, const Members& members, Device* device,
                                            const Exchange& exchange);

class GroupCommunicator final : public Communicator {
 public:
  GroupCommunicator(GroupBasis& basis, Device* device, Buffer scratch, Both both)
      : basis_(basis), device_(device), scratch_(std::move(scratch)) {
    stream_collectives_ = std::move(both[0]);
    host_collectives_ = std::move(both[1]);
  }

  int rank() const override { return host_collectives_->group().rank; }
  int size() const override { return host_collectives_->group().size(); }

  void all_gather(View shard, View full, Stream& stream, const char* what) override {
    TESSERA_ASSERT(device_ && shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
    count_all_gather(shard.bytes());
    stream.run([this, shard, full, what] { stream_collectives_->all_gather(shard, full, what); });
  }
  void reduce_scatter(View full, View shard, Stream& stream, const char* what) override {
    TESSERA_ASSERT(device_ && shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
    count_reduce_scatter(shard.bytes());
    stream.run([this, shard, full, what] { stream_collectives_->reduce_scatter(full, shard, what); });
  }
  void all_reduce(View x, Stream& stream, const char* what) override {
    TESSERA_ASSERT(device_);
    count_all_reduce(x.bytes());
    stream.run([this, x, what] { stream_collectives_->all_reduce(x, what); });
  }
  void broadcast(View x, int root, Stream& stream, const char* what) override {
    TESSERA_ASSERT(device_ && root >= 0 && root < size());
    count_broadcast(x.bytes(), root);
    stream.run([this, x, root, what] { stream_collectives_->broadcast(x, root, what); });
  }

  std::vector<std::string> all_gather_text(std::string_view text, const char* what) override {
    return host_collectives_->exchange(text, what);
  }
  std::vector<double> sum(std::vector<double> values, const char* what) override {
    const size_t bytes = values.size() * sizeof(double);
    const auto texts = host_collectives_->exchange({reinterpret_cast<const char*>(values.data()), bytes}, what);
    for (size_t r = 0; r < texts.size(); ++r) {
      if (texts[r].size() != bytes) {
        throw CommunicationError(
            fmt::format("rank {}", host_collectives_->group().world_ranks[static_cast<size_t>(rank())]),
            fmt::format("sum of {}: this rank passes {}, but rank {} passes {}", what, counted(values.size(), "value"),
                        host_collectives_->group().world_ranks[r], texts[r].size() / sizeof(double)));
      }
    }
    std::vector<double> input(values.size());
    for (size_t r = 0; r < texts.size(); ++r) {
      if (bytes > 0) std::memcpy(input.data(), texts[r].data(), bytes);
      for (size_t i = 0; i < input.size(); ++i) values[i] = r == 0 ? input[i] : values[i] + input[i];
    }
    return values;
  }
  void barrier(const char* what) override { host_collectives_->exchange("", what); }

  std::unique_ptr<Communicator> split(int color, int rank, int size) override {
    auto group = make_part(basis_, *this, device_, color, rank);
    TESSERA_ASSERT(group->rank() == rank && group->size() == size);
    return group;
  }

  // Forms the group of those ranks of `parent` that pass the same color. This process becomes rank `rank` of the group.
  static std::unique_ptr<Communicator> make_part(GroupBasis& basis, Communicator& parent, Device* device, int color,
                                                 int rank) {
    const Exchange exchange = [&](std::string_view text) { return parent.all_gather_text(text, kForming); };
    struct Member {
      int rank, place, world_rank;
    };
    std::vector<Member> found;
    const auto texts = exchange(text_of({color, rank, basis.messenger->rank()}));
    for (size_t place = 0; place < texts.size(); ++place) {
      const std::vector<int> numbers = numbers_of(texts[place]);
      TESSERA_ASSERT(numbers.size() == 3);
      if (numbers[0] == color) found.push_back({numbers[1], static_cast<int>(place), numbers[2]});
    }
    std::sort(found.begin(), found.end(), [](const Member& a, const Member& b) { return a.rank < b.rank; });
    Members members{.rank = rank, .places = {}, .world_ranks = {}};
    for (const Member& member : found) {
      members.places.push_back(member.place);
      members.world_ranks.push_back(member.world_rank);
    }
    return make_group_of(basis, members, device, exchange);
  }

 private:
  GroupBasis& basis_;
  Device* device_;
  Buffer scratch_;
  std::unique_ptr<Collectives> stream_collectives_, host_collectives_;
};

// All ranks of the exchange take part, also if their groups have only one rank.
std::unique_ptr<Communicator> make_group_of(GroupBasis& basis, const Members& members, Device* device,
                                            const Exchange& exchange) {
  const WorldOptions& options = basis.options;
  const GroupInfo group{
      .rank = members.rank, .world_ranks = members.world_ranks, .timeout_s = options.timeout_s, .board = basis.board};
  Buffer memory;
  View scratch;
  if (device && group.size() > 1) {
    memory = device->allocate(communication_scratch_bytes(group.size()), Category::communication);
    scratch = memory.view({memory.bytes()}, DType::u8);
  }
  // All groups that form now get the same numbers for their channels. They have no rank in common.
  int channel = 0;
  for (const std::string& text : exchange(text_of({*basis.next_channel}))) {
    channel = std::max(channel, numbers_of(text)[0]);
  }
  *basis.next_channel = channel + 2;
  Both both;
  if (options.transport != Transport::messages) both = make_direct_collectives(members, group, scratch, exchange);
  if (group.size() == 1) return make_self_communicator();
  if (both.empty() && options.transport == Transport::direct) {
    throw CommunicationError("", "the ranks cannot read each other's memory");
  }
  if (both.empty()) both = make_message_collectives(basis, group, scratch, channel);
  return std::make_unique<GroupCommunicator>(basis, device, std::move(memory), std::move(both));
}

}  // namespace

std::unique_ptr<Communicator> make_first_group(GroupBasis& basis) {
  Messenger& messenger = *basis.messenger;
  if (messenger.size() == 1) return make_self_communicator();
  Members members{.rank = messenger.rank(), .places = std::vector<int>(static_cast<size_t>(messenger.size()))};
  std::iota(members.places.begin(), members.places.end(), 0);
  members.world_ranks = members.places;
  const GroupInfo group{.rank = members.rank,
                        .world_ranks = members.world_ranks,
                        .timeout_s = basis.options.timeout_s,
                        .board = basis.board};
  MessageCollectives first(group, messenger.open((*basis.next_channel)++, members.world_ranks), View());
  return make_group_of(basis, members, nullptr, [&](std::string_view text) { return first.exchange(text, kForming); });
}

std::unique_ptr<Communicator> make_group(GroupBasis& basis, Communicator& parent, Device* device) {
  if (parent.size() == 1) return make_self_communicator();
  return GroupCommunicator::make_part(basis, parent, device, 0, parent.rank());
}

}  // namespace tessera
