// One summary for all ranks and nodes, for `tessera doctor` with several ranks.
#pragma once

#include <string>
#include <vector>

#include "tessera/app/shared_folder.h"
#include "tessera/app/verbs.h"
#include "tessera/comm/clock_offsets.h"
#include "tessera/report/console.h"
#include "tessera/report/record.h"

namespace tessera {

// The facts about this rank that are compared: host, node, cores, memory, versions, GPUs, variables.
Record rank_facts(const Environment& environment, const std::string& host, int node);

// The summary of all ranks' facts, by rank: hosts, versions, warnings (what differs or looks wrong) and problems (what
// makes a run impossible). The keys are in docs/outputs.md.
Record cluster_summary(const std::vector<Record>& ranks, const std::vector<ClockOffset>& clocks,
                       const std::vector<SharedFolder>& folders);

// The summary as text for a person, without the last newline.
std::string cluster_text(const Record& summary, const Terminal& terminal);

// Gathers the facts, checks the folders, prints the summary on the first rank. Returns the exit code: 1 if there are
// problems. Collective.
int report_cluster(const Invocation& invocation);

}  // namespace tessera
