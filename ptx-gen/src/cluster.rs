//! Clusters: blocks that run together and reach each other's shared memory; and warpgroups with different roles.

use crate::asynchronous::Mbarrier;
use crate::build::{Builder, Src, U32, Val};
use crate::elem::Elem;
use crate::ir::{Level, Operand};
use crate::isa;
use crate::mem::{Peer, Ptr, Shared};
use crate::ty::Kind;

impl<'k> Builder<'k> {
    /// The block's number in its cluster; 0 without clusters. sm_90.
    #[track_caller]
    pub fn cluster_rank(self) -> U32<'k> {
        self.special("%cluster_ctarank", Level::Block)
    }

    /// Blocks of a cluster; 1 without clusters. sm_90.
    #[track_caller]
    pub fn cluster_blocks(self) -> U32<'k> {
        self.special("%cluster_nctarank", Level::Block)
    }

    /// The cluster's number along the grid's first dimension. sm_90.
    #[track_caller]
    pub fn cluster_id(self) -> U32<'k> {
        self.special("%clusterid.x", Level::Block)
    }

    /// Clusters along the grid's first dimension. sm_90.
    #[track_caller]
    pub fn clusters(self) -> U32<'k> {
        self.special("%nclusterid.x", Level::Block)
    }

    /// Arrives at the barrier of the cluster, and publishes what this thread wrote. Every thread of the cluster that
    /// has not exited arrives, then [waits](Builder::cluster_wait). sm_90.
    #[track_caller]
    pub fn cluster_arrive(self) {
        self.inst(&isa::CLUSTER_ARRIVE, Kind::U32, None, [], [])
    }

    /// The same, which orders no memory: for what is ordered otherwise.
    #[track_caller]
    pub fn cluster_arrive_relaxed(self) {
        self.inst(&isa::CLUSTER_ARRIVE_RELAXED, Kind::U32, None, [], [])
    }

    /// Waits until every thread of the cluster has arrived; sees what they published.
    #[track_caller]
    pub fn cluster_wait(self) {
        self.inst(&isa::CLUSTER_WAIT, Kind::U32, None, [], [])
    }

    /// Arrives at the barrier of the cluster and waits for it.
    #[track_caller]
    pub fn cluster_barrier(self) {
        self.cluster_arrive();
        self.cluster_wait();
    }

    /// The number of the thread's warpgroup in its block: the same in its four warps.
    #[track_caller]
    pub fn warpgroup(self) -> U32<'k> {
        let group = self.thread() >> 7;
        self.pin(group.reg, Level::Warpgroup);
        group
    }

    /// Runs a role in each of the next warpgroups of the block, with so many registers a thread, a multiple of 8 from
    /// 24 to 240. The roles take all warpgroups, and together no more registers than the block is launched with:
    /// what a multiprocessor has, over [`blocks_per_sm`](crate::KernelDef::blocks_per_sm), in eights. sm_90a.
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
            match role.registers > launched {
                true => self.take_registers(role.registers),
                false => self.give_registers(role.registers),
            }
            let own = group - first;
            self.pin(own.reg, Level::Warpgroup);
            (role.run)(own)
        };
        if roles.is_empty() {
            return run();
        }
        let next = first + role.warpgroups;
        self.when(group.lt(next), run)
            .otherwise(|| self.role(group, next, launched, roles));
    }
}

/// What some warpgroups of a block do.
pub struct Role<'f, 'k> {
    /// How many do it.
    pub warpgroups: u32,
    /// Registers of each of their threads.
    pub registers: u32,
    /// What they do; it is given the warpgroup's number among them.
    pub run: Box<dyn FnOnce(U32<'k>) + 'f>,
}

impl<'f, 'k> Role<'f, 'k> {
    /// So many warpgroups, with so many registers a thread.
    pub fn new(warpgroups: u32, registers: u32, run: impl FnOnce(U32<'k>) + 'f) -> Self {
        Role {
            warpgroups,
            registers,
            run: Box::new(run),
        }
    }
}

impl<'k, T: Elem> Ptr<'k, T, Shared> {
    /// The same place in the shared memory of block `rank` of the cluster. sm_90.
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
    /// Arrives at the barrier at the same place of block `rank` of the cluster, and publishes what this thread wrote.
    ///
    /// That block must not have ended: a [`cluster_barrier`](Builder::cluster_barrier) comes last in all. sm_90.
    #[track_caller]
    pub fn arrive_in_block(self, rank: impl Src<'k, u32>) {
        let there = self.ptr().in_block(rank);
        there
            .k
            .inst(&isa::MBAR_ARRIVE_PEER, Kind::U32, None, [], [there.addr()])
    }

    /// The same; publishes to that block what this thread wrote there, for who
    /// [waits for the cluster](Mbarrier::wait_for_cluster). sm_90.
    #[track_caller]
    pub fn publish_to_block(self, rank: impl Src<'k, u32>) {
        let there = self.ptr().in_block(rank);
        there
            .k
            .inst(&isa::MBAR_PUBLISH_PEER, Kind::U32, None, [], [there.addr()])
    }
}
