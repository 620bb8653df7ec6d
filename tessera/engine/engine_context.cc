#include "tessera/engine/engine_context.h"

namespace tessera {

RankGroups::RankGroups(Communicator& world_group, const ShardPlan& plan) : world(&world_group) {
  TESSERA_ASSERT(world->size() == plan.world_size());
  const bool whole = plan.num_replicas() == 1;
  if (!whole) own_shard_ = world->split(plan.replica(), plan.shard_rank(), plan.shard_group_size());
  own_replica_ =
      whole ? make_self_communicator() : world->split(plan.shard_rank(), plan.replica(), plan.num_replicas());
  shard = whole ? world : own_shard_.get();
  replica = own_replica_.get();
}

}  // namespace tessera
