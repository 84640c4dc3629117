//! Thread block clusters, access to shared memory of other blocks, and warpgroups with different
//! roles.

use crate::asynchronous::Mbarrier;
use crate::build::{Builder, Src, U32, Val};
use crate::elem::Elem;
use crate::ir::{Level, Operand};
use crate::isa;
use crate::mem::{Peer, Ptr, Shared};
use crate::ty::Kind;

impl<'k> Builder<'k> {
    /// Returns the index of the block in its cluster (`%cluster_ctarank`). It is 0 without
    /// clusters. Needs sm_90.
    #[track_caller]
    pub fn cluster_rank(self) -> U32<'k> {
        self.special("%cluster_ctarank", Level::Block)
    }

    /// Returns the number of blocks in a cluster (`%cluster_nctarank`). It is 1 without clusters.
    /// Needs sm_90.
    #[track_caller]
    pub fn cluster_blocks(self) -> U32<'k> {
        self.special("%cluster_nctarank", Level::Block)
    }

    /// Returns the index of the cluster along the first dimension of the grid (`%clusterid.x`).
    /// Needs sm_90.
    #[track_caller]
    pub fn cluster_id(self) -> U32<'k> {
        self.special("%clusterid.x", Level::Block)
    }

    /// Returns the number of clusters along the first dimension of the grid (`%nclusterid.x`).
    /// Needs sm_90.
    #[track_caller]
    pub fn clusters(self) -> U32<'k> {
        self.special("%nclusterid.x", Level::Block)
    }

    /// Arrives at the barrier of the cluster and publishes the earlier writes of this thread
    /// (`barrier.cluster.arrive.release`). Needs sm_90.
    ///
    /// Every thread of the cluster that has not exited must arrive and then call
    /// [`cluster_wait`](Builder::cluster_wait).
    #[track_caller]
    pub fn cluster_arrive(self) {
        self.inst(&isa::CLUSTER_ARRIVE, Kind::U32, None, [], [])
    }

    /// Arrives at the barrier of the cluster without ordering memory
    /// (`barrier.cluster.arrive.relaxed`). Needs sm_90.
    ///
    /// Use it if memory is ordered by other means, or if there is nothing to publish.
    #[track_caller]
    pub fn cluster_arrive_relaxed(self) {
        self.inst(&isa::CLUSTER_ARRIVE_RELAXED, Kind::U32, None, [], [])
    }

    /// Waits until every thread of the cluster has arrived, and acquires their published writes
    /// (`barrier.cluster.wait.acquire`). Needs sm_90.
    #[track_caller]
    pub fn cluster_wait(self) {
        self.inst(&isa::CLUSTER_WAIT, Kind::U32, None, [], [])
    }

    /// Arrives at the barrier of the cluster and waits for it:
    /// [`cluster_arrive`](Builder::cluster_arrive) and [`cluster_wait`](Builder::cluster_wait).
    /// Needs sm_90.
    #[track_caller]
    pub fn cluster_barrier(self) {
        self.cluster_arrive();
        self.cluster_wait();
    }

    /// Returns the index of the warpgroup in its block: [`thread`](Builder::thread) shifted right
    /// by 7.
    ///
    /// Validation knows that the value is uniform in each warpgroup.
    #[track_caller]
    pub fn warpgroup(self) -> U32<'k> {
        let group = self.thread() >> 7;
        self.pin(group.reg, Level::Warpgroup);
        group
    }

    /// Runs each role in its own warpgroups, with a separate number of registers per thread. Needs
    /// sm_90a.
    ///
    /// Roles take the warpgroups of the block in order, and together they must take all of them.
    /// Each thread of a role gets the given number of registers, a multiple of 8 from 24 to 240
    /// (`setmaxnreg`). All roles together must not need more registers than the block has at
    /// launch, which is an equal share of the multiprocessor for each of
    /// [`blocks_per_sm`](crate::KernelDef::blocks_per_sm) blocks. Validation returns an error
    /// otherwise.
    ///
    /// Usually one role copies data and needs few registers, and the others compute.
    #[track_caller]
    pub fn roles(self, roles: Vec<Role<'_, 'k>>) {
        let launched = self.declare_roles(
            roles
                .iter()
                .map(|role| (role.warpgroups, role.registers))
                .collect(),
        );
        let group = self.warpgroup();
        self.role(group, 0, launched, roles.into())
    }

    /// Emits the first of `roles`, which begins at warpgroup `first`, and branches to the rest.
    #[track_caller]
    fn role(
        self,
        group: U32<'k>,
        first: u32,
        launched: u32,
        mut roles: std::collections::VecDeque<Role<'_, 'k>>,
    ) {
        let Some(role) = roles.pop_front() else {
            return;
        };

        let run = || {
            if role.registers > launched {
                self.take_registers(role.registers);
            } else {
                self.give_registers(role.registers);
            }
            let own = group - first;
            self.pin(own.reg, Level::Warpgroup);
            (role.run)(own)
        };

        // The last role has all remaining warpgroups and needs no branch.
        if roles.is_empty() {
            return run();
        }

        let next = first + role.warpgroups;
        self.when(group.lt(next), run)
            .otherwise(|| self.role(group, next, launched, roles));
    }
}

/// The work of some warpgroups of a block. See [`Builder::roles`].
pub struct Role<'f, 'k> {
    /// The number of warpgroups that run the role.
    pub warpgroups: u32,
    /// The number of registers of each thread.
    pub registers: u32,
    /// The function that emits the work. Its argument is the index of the warpgroup within the
    /// role.
    pub run: Box<dyn FnOnce(U32<'k>) + 'f>,
}

impl<'f, 'k> Role<'f, 'k> {
    /// Returns a role for `warpgroups` warpgroups with `registers` registers per thread.
    pub fn new(warpgroups: u32, registers: u32, run: impl FnOnce(U32<'k>) + 'f) -> Self {
        Role {
            warpgroups,
            registers,
            run: Box::new(run),
        }
    }
}

impl<'k, T: Elem> Ptr<'k, T, Shared> {
    /// Returns the address of the same location in the shared memory of block `rank` of the cluster
    /// (`mapa`). Needs sm_90.
    ///
    /// Order accesses to it with [`cluster_barrier`](Builder::cluster_barrier). The other block
    /// must not exit before the access, so a cluster barrier is needed at the end as well.
    #[track_caller]
    pub fn in_block(self, rank: impl Src<'k, u32>) -> Ptr<'k, T, Peer> {
        let address = self.address();
        let there: Val<u32> = self.k.emit(
            &isa::MAPA,
            Kind::U32,
            [Operand::Reg(address.reg), rank.operand()],
        );
        Ptr::new(self.k, there.reg)
    }
}

impl<'k> Mbarrier<'k> {
    /// Arrives at the mbarrier at the same location of block `rank` of the cluster
    /// (`mbarrier.arrive.shared::cluster`), and publishes the earlier writes of this thread. Needs
    /// sm_90.
    ///
    /// The other block must not have exited. End the kernel with a
    /// [`cluster_barrier`](Builder::cluster_barrier) in all blocks.
    #[track_caller]
    pub fn arrive_in_block(self, rank: impl Src<'k, u32>) {
        let there = self.ptr().in_block(rank);
        there
            .k
            .inst(&isa::MBAR_ARRIVE_PEER, Kind::U32, None, [], [there.addr()])
    }

    /// Arrives at the mbarrier at the same location of block `rank` and publishes the earlier
    /// writes of this thread to the cluster (`mbarrier.arrive.release.cluster`). Needs sm_90.
    ///
    /// Threads of that block see the writes after [`wait_for_cluster`](Mbarrier::wait_for_cluster).
    #[track_caller]
    pub fn publish_to_block(self, rank: impl Src<'k, u32>) {
        let there = self.ptr().in_block(rank);
        there
            .k
            .inst(&isa::MBAR_PUBLISH_PEER, Kind::U32, None, [], [there.addr()])
    }
}
