// Tests connections between ranks in one process. All random numbers have fixed seeds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <random>

#include "tessera/comm/ranks/message_collectives.h"
#include "tessera/comm/tcp/alarm_line.h"
#include "tessera/comm/tcp/doorway.h"
#include "tessera/comm/tcp/greeting.h"
#include "tessera/comm/tcp/tcp_channel.h"
#include "tessera/comm/tcp/tcp_messenger.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr double kLong_s = 60;  // a test that waits longer has failed

std::pair<Socket, Socket> connected_pair() {
  int both[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both), 0);
  return {Socket(both[0]), Socket(both[1])};
}

std::string random_bytes(std::mt19937& random, size_t longest) {
  std::string bytes(random() % (longest + 1), '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// ---- Greetings and frames

TEST(TcpGreeting, ReadsWhatItWrites) {
  const Greeting sent{.token = run_token("a"), .rank = 3, .size = 8, .channel = 17, .port = 65535};
  const auto read = Greeting::parse(sent.to_bytes());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->token, run_token("a"));
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->size, 8);
  EXPECT_EQ(read->channel, 17);
  EXPECT_EQ(read->port, 65535);
  EXPECT_FALSE(run_token("a") == run_token("b"));
  EXPECT_FALSE(run_token("ab") == run_token("ba"));
}

TEST(TcpGreeting, ImpossibleNumbersAreRefused) {
  for (const Greeting& wrong :
       {Greeting{.rank = 8, .size = 8}, Greeting{.rank = -1, .size = 8}, Greeting{.rank = 0, .size = 0},
        Greeting{.rank = 0, .size = 1 << 30}, Greeting{.rank = 0, .size = 2, .channel = -2},
        Greeting{.rank = 0, .size = 2, .port = 65536}, Greeting{.rank = 0, .size = 2, .port = -1}}) {
    EXPECT_FALSE(Greeting::parse(wrong.to_bytes())) << wrong.rank << " of " << wrong.size;
  }
  const auto later = Greeting::parse(Greeting{.protocol = 9, .rank = -5}.to_bytes());
  ASSERT_TRUE(later);
  EXPECT_EQ(later->protocol, 9u) << "a later version must be named, not refused as nonsense";
}

TEST(TcpGreeting, RandomBytesAreNoGreetingAndNoFrame) {
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    std::array<std::byte, Greeting::kBytes> bytes;
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    EXPECT_FALSE(Greeting::parse(bytes));
    EXPECT_FALSE(Frame::parse_head(std::span<const std::byte, Frame::kHeadBytes>(bytes.data(), Frame::kHeadBytes)));
  }
}

TEST(TcpGreeting, ChangedBytesOfAGreetingAreHarmless) {
  std::mt19937 random(2);
  for (int i = 0; i < 10'000; ++i) {
    auto bytes = Greeting{.token = run_token("a"), .rank = 3, .size = 8, .channel = 1, .port = 7}.to_bytes();
    bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 << random() % 8);
    if (const auto read = Greeting::parse(bytes); read && read->protocol == kTcpProtocol) {
      EXPECT_TRUE(read->rank >= 0 && read->rank < read->size && read->channel >= -1);
    }
  }
}

TEST(TcpGreeting, AFrameThatIsTooLongIsRefused) {
  auto [mine, theirs] = connected_pair();
  const std::string bytes = Frame{Frame::Kind::kTable, "10.0.0.1 7\n"}.to_bytes();
  ASSERT_TRUE(send_all(mine, bytes.data(), bytes.size(), deadline_in(kLong_s)));
  const auto frame = receive_frame(theirs, deadline_in(kLong_s));
  ASSERT_TRUE(frame);
  EXPECT_EQ(frame->text, "10.0.0.1 7\n");
  uint32_t head[2];
  std::memcpy(head, bytes.data(), sizeof head);
  head[1] = Frame::kLongest + 1;
  ASSERT_TRUE(send_all(mine, head, sizeof head, deadline_in(kLong_s)));
  EXPECT_FALSE(receive_frame(theirs, deadline_in(kLong_s)));
}

TEST(TcpGreeting, AlarmsSurviveTheWire) {
  for (const std::string& error : {std::string("rank 3: disk: is full"), std::string(), std::string("two\nlines ")}) {
    const auto alarm =
        AlarmLine::parse(AlarmLine::text_of({.rank = 3, .code = ExitCode::kBadInput, .error = error, .is_lost = true}));
    ASSERT_TRUE(alarm);
    EXPECT_EQ(alarm->rank, 3);
    EXPECT_EQ(alarm->code, ExitCode::kBadInput);
    EXPECT_EQ(alarm->error, error);
    EXPECT_TRUE(alarm->is_lost);
  }
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) AlarmLine::parse(random_bytes(random, 40));
  for (const char* text : {"", "5", "5 1", "5 1 1", "x 1 0 y", "999 1 0 y", "5 -1 0 y"}) {
    EXPECT_FALSE(AlarmLine::parse(text)) << text;
  }
}

// ---- The doorway

struct Door : testing::Test {
  static constexpr double kGreeting_s = 0.05;

  Doorway::Options options(int size = 4) {
    return {
        .token = run_token("mine"), .size = size, .greeting_s = kGreeting_s, .log = [this](const std::string& line) {
          const std::lock_guard lock(mutex);
          lines.push_back(line);
        }};
  }
  Socket visit(const Doorway& door) {
    std::string error;
    Socket socket = connect_to("127.0.0.1", door.port(), deadline_in(kLong_s), error);
    EXPECT_TRUE(socket) << error;
    return socket;
  }
  Socket visit(const Doorway& door, const Greeting& greeting) {
    Socket socket = visit(door);
    const auto bytes = greeting.to_bytes();
    EXPECT_TRUE(send_all(socket, bytes.data(), bytes.size(), deadline_in(kLong_s)));
    return socket;
  }
  static bool is_closed(const Socket& socket) {
    char byte;
    return !receive_all(socket, &byte, 1, deadline_in(kLong_s));
  }
  static Greeting rank(int number, int channel = 0) {
    return {.token = run_token("mine"), .rank = number, .size = 4, .channel = channel};
  }

  std::mutex mutex;
  std::vector<std::string> lines;
};

TEST_F(Door, LetsRanksInByChannel) {
  Doorway door(listen_at("127.0.0.1", 0), options());
  const Socket second = visit(door, rank(2, 5)), first = visit(door, rank(1, 5)), other = visit(door, rank(1, 6));
  const auto guests = door.take(5, {1, 2}, deadline_in(kLong_s));
  ASSERT_EQ(guests.size(), 2u);
  EXPECT_EQ(guests.at(2).greeting.rank, 2);
  EXPECT_EQ(guests.at(2).address, "127.0.0.1");
  EXPECT_EQ(receive_frame(first, deadline_in(kLong_s))->kind, Frame::Kind::kWelcome);
  EXPECT_EQ(door.take(6, {1}, deadline_in(kLong_s)).size(), 1u);
  EXPECT_EQ(door.take(6, {1, 3}, deadline_in(0)).size(), 0u) << "each connection is returned once";
}

TEST_F(Door, RefusesStrangersAndHalfOpenConnections) {
  Doorway door(listen_at("127.0.0.1", 0), options());
  const Socket silent = visit(door), half = visit(door),
               other_run = visit(door, {.token = run_token("other"), .rank = 1, .size = 4});
  ASSERT_TRUE(send_all(half, "tessera", 7, deadline_in(kLong_s)));
  const Socket talks = visit(door);
  const std::string http = "GET / HTTP/1.1\r\nHost: localhost\r\nAccept: text/html,application/json\r\n\r\n";
  ASSERT_TRUE(send_all(talks, http.data(), http.size(), deadline_in(kLong_s)));
  EXPECT_EQ(receive_frame(other_run, deadline_in(kLong_s))->kind, Frame::Kind::kStranger);
  for (const Socket* socket : {&silent, &half, &other_run, &talks}) EXPECT_TRUE(is_closed(*socket));
  const Socket good = visit(door, rank(1));
  EXPECT_EQ(door.take(0, {1}, deadline_in(kLong_s)).size(), 1u);
  const std::lock_guard lock(mutex);
  EXPECT_THAT(lines, testing::UnorderedElementsAre(
                         HasSubstr("sent no complete greeting"), HasSubstr("sent no complete greeting"),
                         HasSubstr("belongs to another run"), HasSubstr("something else than a greeting")));
  for (const std::string& line : lines) EXPECT_THAT(line, HasSubstr("refused a connection from 127.0.0.1: "));
}

TEST_F(Door, RandomStreamsDoNoHarm) {
  Doorway door(listen_at("127.0.0.1", 0), options());
  std::mt19937 random(4);
  std::vector<Socket> kept;
  for (int i = 0; i < 300; ++i) {
    Socket socket = visit(door);
    std::string bytes = random_bytes(random, 100);
    if (i % 3 == 0) {  // begins like a greeting of this run
      const auto good = rank(1).to_bytes();
      bytes = std::string(reinterpret_cast<const char*>(good.data()), random() % good.size()) + bytes;
    }
    send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (i % 2 == 0) kept.push_back(std::move(socket));
  }
  const Socket good = visit(door, rank(3, 9));
  EXPECT_EQ(door.take(9, {3}, deadline_in(kLong_s)).size(), 1u);
  const std::lock_guard lock(mutex);
  EXPECT_LE(std::ssize(lines), Doorway::kMostLines);
}

TEST_F(Door, ContradictionsAreNamed) {
  const auto contradiction = [&](const Greeting& second) {
    Doorway door(listen_at("127.0.0.1", 0), options());
    const Socket first = visit(door, rank(1, Greeting::kLine));
    EXPECT_EQ(receive_frame(first, deadline_in(kLong_s))->kind, Frame::Kind::kWelcome);
    const Socket socket = visit(door, second);
    const auto answer = receive_frame(socket, deadline_in(kLong_s));
    EXPECT_TRUE(answer && answer->kind == Frame::Kind::kRefused);
    try {
      door.take(Greeting::kLine, {1, 2, 3}, deadline_in(kLong_s));
    } catch (const UsageError& error) {
      EXPECT_THAT(answer->text, HasSubstr(error.what()));
      EXPECT_THROW(throw_if_refused(*answer), UsageError);
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_THAT(contradiction(rank(1, Greeting::kLine)), HasSubstr("RANK: is 1 in two processes, at 127.0.0.1 and at"));
  EXPECT_THAT(contradiction(rank(0, Greeting::kLine)), HasSubstr("RANK: is 0 in two processes"));
  Greeting other = rank(2, Greeting::kLine);
  other.size = 8;
  EXPECT_THAT(contradiction(other), HasSubstr("WORLD_SIZE: is 8 on rank 2 (127.0.0.1), but 4 on rank 0"));
  other = rank(2, Greeting::kLine);
  other.protocol = 9;
  EXPECT_THAT(contradiction(other), HasSubstr("another version of Tessera"));
}

// A rank that waited too long for its welcome closes the connection and comes again.
TEST_F(Door, ARankMayComeAgainIfItsFirstConnectionHasEnded) {
  Doorway door(listen_at("127.0.0.1", 0), options());
  for (int attempt = 0; attempt < 20; ++attempt) {
    const Socket first = visit(door, rank(1, Greeting::kLine));
    if (attempt % 2 == 0) {
      EXPECT_EQ(receive_frame(first, deadline_in(kLong_s))->kind, Frame::Kind::kWelcome);
    }
  }  // each connection ends here
  const Socket last = visit(door, rank(1, Greeting::kLine));
  EXPECT_EQ(receive_frame(last, deadline_in(kLong_s))->kind, Frame::Kind::kWelcome);
}

// ---- Channels

// One channel for each of `size` ranks.
std::vector<std::unique_ptr<Channel>> make_channels(int size) {
  std::vector<std::vector<Socket>> sockets(static_cast<size_t>(size));
  for (auto& list : sockets) list.resize(static_cast<size_t>(size));
  for (size_t a = 0; a < sockets.size(); ++a) {
    for (size_t b = 0; b < a; ++b) std::tie(sockets[a][b], sockets[b][a]) = connected_pair();
  }
  std::vector<std::unique_ptr<Channel>> channels;
  for (auto& list : sockets) channels.push_back(make_tcp_channel(std::move(list)));
  return channels;
}

// All ranks draw the same schedule: in each round, random pairs exchange messages of random lengths, in two batches
// that overlap. The bytes of a message follow from its number.
TEST(TcpChannel, RandomSchedulesArrive) {
  constexpr int kSize = 4, kRounds = 60;
  const auto channels = make_channels(kSize);
  const auto byte_of = [](size_t message, size_t i) { return static_cast<std::byte>(message * 31 + i * 7); };
  const auto run = [&](int rank) {
    std::mt19937 random(5);
    size_t number = 0;
    for (int round = 0; round < kRounds; ++round) {
      struct Message {
        size_t number;
        bool is_sent;
        std::vector<std::byte> bytes;
      };
      std::vector<std::unique_ptr<Message>> messages;
      std::unique_ptr<MessageBatch> batches[2] = {channels[static_cast<size_t>(rank)]->make_batch(),
                                                  channels[static_cast<size_t>(rank)]->make_batch()};
      for (int i = 0; i < 20; ++i, ++number) {
        const int from = static_cast<int>(random() % kSize), to = static_cast<int>(random() % kSize);
        const size_t length = random() % (random() % 8 == 0 ? 2'000'000 : 3000);
        if (from == to || (from != rank && to != rank)) continue;
        messages.push_back(std::make_unique<Message>(number, from == rank, std::vector<std::byte>(length)));
        std::vector<std::byte>& bytes = messages.back()->bytes;
        MessageBatch& batch = *batches[i < 10 ? 0 : 1];
        if (from == rank) {
          for (size_t k = 0; k < length; ++k) bytes[k] = byte_of(number, k);
          batch.send(to, bytes.data(), std::ssize(bytes));
        } else {
          batch.receive(from, bytes.data(), std::ssize(bytes));
        }
      }
      for (auto& batch : batches) EXPECT_TRUE(batch->wait(deadline_in(kLong_s), [] {}).empty());
      for (const auto& message : messages) {
        for (size_t k = 0; k < message->bytes.size(); ++k) ASSERT_EQ(message->bytes[k], byte_of(message->number, k));
      }
    }
  };
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < kSize; ++rank) ranks.push_back(std::async(std::launch::async, run, rank));
  for (auto& rank : ranks) rank.get();
}

TEST(TcpChannel, NamesThePeersThatAreLate) {
  auto channels = make_channels(4);
  std::vector<std::byte> data(8);
  const auto batch = channels[0]->make_batch();
  for (const int peer : {3, 1, 2}) batch->receive(peer, data.data(), 4);
  const auto sender = channels[2]->make_batch();
  sender->send(0, data.data(), 4);
  EXPECT_TRUE(sender->wait(deadline_in(kLong_s), [] {}).empty());
  int num_sleeps = 0;
  EXPECT_EQ(batch->wait(deadline_in(0.02), [&] { ++num_sleeps; }), (std::vector<int>{1, 3}));
  EXPECT_EQ(num_sleeps, 1);
}

TEST(TcpChannel, APeerThatEndsIsAFailureOnlyIfItIsNeeded) {
  auto channels = make_channels(3);
  std::vector<std::byte> data(8);
  channels[1] = nullptr;
  {
    const auto batch = channels[0]->make_batch();
    batch->send(2, data.data(), 8);
    EXPECT_TRUE(batch->wait(deadline_in(kLong_s), [] {}).empty());
  }
  const auto batch = channels[0]->make_batch();
  batch->receive(1, data.data(), 8);
  try {
    batch->wait(deadline_in(kLong_s), [] {});
    FAIL();
  } catch (const MessageFailure& failure) {
    EXPECT_EQ(failure.peer, 1);
    EXPECT_EQ(failure.what, "has ended or failed");
  }
}

// A message may arrive after its collective has failed. The caller may have freed the array of the collective by then,
// so the message must not be written to this array. In this test, rank 1 sends the messages of a broadcast without
// MessageCollectives. It sends the data after the broadcast of rank 0 has timed out.
TEST(TcpChannel, AFailedCollectiveLeavesMemoryAlone) {
  auto channels = make_channels(2);
  std::vector<float> x(16, 7);
  const View view = view_of(x.data(), {16});
  Call call = Call::make(Collective::broadcast, view.dtype, view.bytes(), "parameters of h.4", 1);
  const auto announcement = channels[1]->make_batch();
  announcement->send(0, reinterpret_cast<const std::byte*>(&call), sizeof call);
  ASSERT_TRUE(announcement->wait(deadline_in(kLong_s), [] {}).empty());
  MessageCollectives collectives({.rank = 0, .world_ranks = {0, 1}, .timeout_s = 0.01}, std::move(channels[0]), View());
  EXPECT_THROW(collectives.broadcast(view, 1, "parameters of h.4"), CommunicationError);
  std::vector<float> y(16, 8);
  const auto data = channels[1]->make_batch();
  data->send(0, reinterpret_cast<const std::byte*>(y.data()), view.bytes());
  EXPECT_THROW(data->wait(deadline_in(kLong_s), [] {}), MessageFailure) << "the channel is closed after a failure";
  EXPECT_EQ(x, std::vector<float>(16, 7));
  EXPECT_THROW(collectives.broadcast(view, 1, "parameters of h.4"), CommunicationError);
}

// ---- Complete runs

// Runs `work` as `size` ranks in one process, which meet at a port that is free.
void run_ranks_here(int size, double timeout_s,
                    const std::function<void(int, const MeetingPoint&, const TcpOptions&)>& work) {
  Socket listener = listen_at("127.0.0.1", 0);
  MeetingPoint meeting{.host = "127.0.0.1", .first_port = own_port(listener), .token = "t", .is_local = true};
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    meeting.listener = rank == 0 ? std::exchange(listener, Socket()).descriptor() : -1;
    if (rank == 0) meeting.listener = dup(meeting.listener);
    ranks.push_back(std::async(std::launch::async, work, rank, meeting, TcpOptions{.timeout_s = timeout_s}));
  }
  for (auto& rank : ranks) rank.get();
}

TEST(TcpMessenger, ConnectsAllRanks) {
  run_ranks_here(5, kLong_s, [](int rank, const MeetingPoint& meeting, const TcpOptions& options) {
    const auto messenger = make_tcp_messenger(rank, 5, meeting, options);
    EXPECT_EQ(messenger->rank(), rank);
    EXPECT_EQ(messenger->size(), 5);
    MessageCollectives all({.rank = rank, .world_ranks = {0, 1, 2, 3, 4}, .timeout_s = kLong_s},
                           messenger->open(0, {0, 1, 2, 3, 4}), View());
    EXPECT_EQ(all.exchange(std::to_string(rank), "ranks"), (std::vector<std::string>{"0", "1", "2", "3", "4"}));
    if (rank % 2 == 0) {  // the other ranks do not take part
      const int own = 2 - rank / 2;
      MessageCollectives even({.rank = own, .world_ranks = {4, 2, 0}, .timeout_s = kLong_s},
                              messenger->open(1, {4, 2, 0}), View());
      EXPECT_EQ(even.exchange(std::to_string(rank), "ranks"), (std::vector<std::string>{"4", "2", "0"}));
    }
    messenger->finish();
  });
}

TEST(TcpMessenger, PassesAnAlarmToAllRanks) {
  std::promise<std::string> heard[4];
  run_ranks_here(4, kLong_s, [&](int rank, const MeetingPoint& meeting, const TcpOptions& options) {
    const auto messenger = make_tcp_messenger(rank, 4, meeting, options);
    std::promise<std::string>& mine = heard[rank];
    messenger->watch([&mine](const Alarm& alarm) {
      mine.set_value(std::to_string(alarm.rank) + (alarm.is_lost ? " lost " : " ") + alarm.error);
    });
    if (rank == 2) {
      messenger->enter_phase("save");
      messenger->raise(ExitCode::kBadInput, "rank 2: disk: is full");
    } else {
      EXPECT_EQ(mine.get_future().get(), "2 rank 2: disk: is full");
    }
    messenger->finish();
  });
}

TEST(TcpMessenger, NoticesARankThatIsGone) {
  std::promise<std::string> heard[3];
  run_ranks_here(3, kLong_s, [&](int rank, const MeetingPoint& meeting, const TcpOptions& options) {
    auto messenger = make_tcp_messenger(rank, 3, meeting, options);
    std::promise<std::string>& mine = heard[rank];
    messenger->watch([&mine](const Alarm& alarm) { mine.set_value(alarm.error); });
    if (rank == 1) {
      messenger->enter_phase("step");
      messenger = nullptr;
      return;
    }
    EXPECT_EQ(mine.get_future().get(),
              "rank 1 (127.0.0.1) was killed, or ended without an error message. Rank 1 was in phase step.");
    messenger->finish();
  });
}

TEST(TcpMessenger, NamesTheRanksThatDoNotArrive) {
  // The time limit at the start is longer than this, so that processes have time to start.
  Socket listener = listen_at("127.0.0.1", 0);
  const MeetingPoint meeting{.host = "127.0.0.1",
                             .first_port = own_port(listener),
                             .token = "t",
                             .is_local = true,
                             .listener = dup(listener.descriptor())};
  try {
    make_tcp_messenger(0, 3, meeting, {.timeout_s = -5});
    FAIL();
  } catch (const CommunicationError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0: not all ranks have arrived within 0 s. Ranks 1, 2 have not arrived."));
  }
}

TEST(TcpMessenger, SkipsPortsOfOtherPrograms) {
  // Another run listens at the first port. At the second port, nobody answers.
  std::optional<Socket> sockets[3];
  int port = 0;
  for (int attempt = 0; attempt < 100 && !sockets[2]; ++attempt) {  // searches three free ports in a row
    sockets[0] = listen_at("127.0.0.1", 0);
    port = own_port(*sockets[0]);
    sockets[1] = listen_at("127.0.0.1", port + 1);
    if (!*sockets[1]) continue;
    if (Socket third = listen_at("127.0.0.1", port + 2)) sockets[2] = std::move(third);
  }
  ASSERT_TRUE(sockets[2]);
  sockets[2].reset();
  Doorway other(std::move(*sockets[0]), {.token = run_token("other"), .size = 2});
  sockets[1] = Socket();
  const MeetingPoint meeting{.host = "127.0.0.1",
                             .first_port = port,
                             .num_ports = 3,
                             .token = "mine",
                             .is_local = true,
                             .place = "MASTER_ADDR"};
  const auto run = [&](int rank) {
    const auto messenger = make_tcp_messenger(rank, 2, meeting, {.timeout_s = kLong_s});
    messenger->finish();
  };
  auto first = std::async(std::launch::async, run, 0), second = std::async(std::launch::async, run, 1);
  first.get();
  second.get();
}

}  // namespace
}  // namespace tessera
