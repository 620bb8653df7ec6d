// One summary for all ranks and nodes, for `tessera doctor` with several ranks.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/shared_folder.h"
#include "tessera/app/verbs.h"
#include "tessera/base/record.h"
#include "tessera/comm/clock_offsets.h"
#include "tessera/log/console.h"

namespace tessera {

// The facts about this rank for the summary: host, node, cores, memory, versions, GPUs, and the environment variables
// for communication. `host` is the name of this rank's host, and `node` is the number of its node (World::nodes()).
Record rank_facts(const Environment& environment, const std::string& host, int node);

// Summarizes the facts of all ranks: hosts, versions, warnings (what differs or looks wrong) and problems (what makes a
// run impossible). `ranks` has the rank_facts() of each rank, and `clocks` has one element per rank. `folders`
// has one element per checked folder. docs/outputs.md lists the keys of the summary.
Record cluster_summary(const std::vector<Record>& ranks, const std::vector<ClockOffset>& clocks,
                       const std::vector<SharedFolder>& folders);

// The summary as text for a person, without a newline at the end.
std::string cluster_text(const Record& summary, const Terminal& terminal);

// Gathers the facts of all ranks, and checks whether they share the folders --output-dir and --shared of rank 0. Rank 0
// prints the summary. Returns the exit code: 1 if there are problems, otherwise 0. Collective.
int report_cluster(const Invocation& invocation);

}  // namespace tessera
