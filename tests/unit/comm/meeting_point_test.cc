#include "tessera/comm/meeting_point.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera {
namespace {

TEST(MeetingPoint, OfTorchrun) {
  Environment environment{{"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "29500"}};
  MeetingPoint meeting = meeting_of_torchrun(environment, 1, 4);
  EXPECT_EQ(meeting.host, "node-0");
  EXPECT_EQ(meeting.first_port, 29500);
  EXPECT_EQ(meeting.num_ports, 1);
  EXPECT_FALSE(meeting.is_local);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  meeting = meeting_of_torchrun(environment, 1, 4);
  EXPECT_EQ(meeting.first_port, 29501) << "torchrun itself uses MASTER_PORT";
  EXPECT_EQ(meeting.num_ports, kPortsAfterStore);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_EQ(meeting_of_torchrun(environment, 1, 4).first_port, 29500);
}

TEST(MeetingPoint, RunsHaveDifferentTokens) {
  const auto token = [](const char* host, const char* port, const char* id, const char* restart) {
    return meeting_of_torchrun({{"MASTER_ADDR", host},
                                {"MASTER_PORT", port},
                                {"TORCHELASTIC_RUN_ID", id},
                                {"TORCHELASTIC_RESTART_COUNT", restart}},
                               0, 2)
        .token;
  };
  EXPECT_EQ(token("localhost", "7", "a", "0"), token("node-0", "7", "a", "0"))
      << "rank 0 may have another name for itself";
  EXPECT_NE(token("h", "7", "a", "0"), token("h", "8", "a", "0"));
  EXPECT_NE(token("h", "7", "a", "0"), token("h", "7", "b", "0"));
  EXPECT_NE(token("h", "7", "a", "0"), token("h", "7", "a", "1"));
}

TEST(MeetingPoint, OneMachineNeedsOnlyLoopback) {
  const auto is_local = [](const char* host, const char* local_size) {
    Environment environment{{"MASTER_ADDR", host}, {"MASTER_PORT", "7"}};
    if (*local_size) environment["LOCAL_WORLD_SIZE"] = local_size;
    return meeting_of_torchrun(environment, 0, 4).is_local;
  };
  EXPECT_TRUE(is_local("node-0", "4"));
  EXPECT_FALSE(is_local("node-0", "2"));
  EXPECT_FALSE(is_local("node-0", ""));
  EXPECT_TRUE(is_local("127.0.0.1", ""));
  EXPECT_TRUE(is_local("::1", ""));
  EXPECT_FALSE(is_local("localhost", "")) << "some starters give this name to rank 0 only";
}

TEST(MeetingPoint, PortsAreChecked) {
  for (const char* port : {"0", "65536", "-1", "x", "7x", " 7", "99999999999"}) {
    EXPECT_THROW(meeting_of_torchrun({{"MASTER_ADDR", "h"}, {"MASTER_PORT", port}}, 0, 2), UsageError) << port;
  }
  Environment environment{{"MASTER_ADDR", "h"}, {"MASTER_PORT", "65535"}};
  EXPECT_EQ(meeting_of_torchrun(environment, 0, 2).first_port, 65535);
  environment["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  EXPECT_THROW(meeting_of_torchrun(environment, 0, 2), UsageError) << "no ports follow";
}

TEST(MeetingPoint, OfSrun) {
  Environment environment{{"SLURM_JOB_ID", "17"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NODELIST", "gpu[03-04]"}};
  const MeetingPoint meeting = meeting_of_srun(environment, 1, 4);
  EXPECT_EQ(meeting.host, "gpu03");
  EXPECT_GE(meeting.first_port, 20000);
  EXPECT_LE(meeting.first_port + meeting.num_ports, 30000);
  EXPECT_FALSE(meeting.is_local);
  environment["SLURM_STEP_ID"] = "1";
  EXPECT_NE(meeting_of_srun(environment, 1, 4).token, meeting.token);
  environment["SLURM_STEP_NUM_NODES"] = "1";
  EXPECT_TRUE(meeting_of_srun(environment, 1, 4).is_local);
  environment.insert({{"MASTER_ADDR", "other"}, {"MASTER_PORT", "7"}});
  EXPECT_EQ(meeting_of_srun(environment, 1, 4).host, "other");
  EXPECT_EQ(meeting_of_srun({{"SLURM_JOB_NODELIST", "a,b"}}, 1, 4).host, "a");
  EXPECT_EQ(meeting_of_srun({{"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}}, 1, 4).host, "10.0.0.9");
  EXPECT_THROW(meeting_of_srun({}, 1, 4), UsageError);
}

TEST(MeetingPoint, FirstHostsOfListsOfSlurm) {
  for (const auto& [list, first] :
       std::initializer_list<std::pair<const char*, const char*>>{{"n1", "n1"},
                                                                  {"n1,n2", "n1"},
                                                                  {"gpu[07-09,12],cpu3", "gpu07"},
                                                                  {"gpu[7]", "gpu7"},
                                                                  {"gpu[7,9]", "gpu7"},
                                                                  {"a,gpu[07-09]", "a"},
                                                                  {"rack[1-2]-eth,n5", "rack1-eth"},
                                                                  {"rack[1-2]n[3-4]", "rack1n3"},
                                                                  {"", ""},
                                                                  {"gpu[", ""},
                                                                  {"gpu[]", ""},
                                                                  {"gpu[-", ""}}) {
    EXPECT_EQ(first_host(list), first) << list;
  }
}

}  // namespace
}  // namespace tessera
