//! The load: random prompts of several users at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::args::LoadArgs;
use super::client::{LoadClient, MeasuredReply};

/// A generator of random numbers: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The result of a round.
pub(super) struct LoadRound {
    /// The time from the first request to the end of the last reply.
    pub(super) wall: Duration,
    /// The replies, by turn.
    pub(super) turns: Vec<Vec<MeasuredReply>>,
}

/// The load of a round, which does not change during the round.
struct RoundPlan {
    client: Arc<LoadClient>,
    conversations: u32,
    prompt: u32,
    new: u32,
    turns: u32,
    turn_tokens: u32,
    ids: (u32, u32),
    /// A seed that no other round has.
    seed: u64,
}

/// Runs a round: as many users as given share the conversations among them, and each waits for a
/// reply before the next request.
///
/// # Errors
/// Returns the first error of a request. The other requests are cancelled.
pub(super) async fn round(
    client: &Arc<LoadClient>,
    load: &LoadArgs,
    users: u32,
    number: u32,
) -> Result<LoadRound, String> {
    let plan = Arc::new(RoundPlan {
        client: Arc::clone(client),
        conversations: load.requests.unwrap_or(users),
        prompt: load.prompt,
        new: load.new,
        turns: load.turns,
        turn_tokens: load.turn_tokens,
        ids: (load.ids[0], load.ids[1]),
        seed: load
            .seed
            .wrapping_add(u64::from(users) << 40)
            .wrapping_add(u64::from(number) << 20),
    });
    let next = Arc::new(AtomicU32::new(0));
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for _ in 0..users.min(plan.conversations) {
        tasks.spawn(user(Arc::clone(&plan), Arc::clone(&next)));
    }

    let mut turns = vec![vec![]; plan.turns as usize];
    while let Some(joined) = tasks.join_next().await {
        let replies = joined.map_err(|error| format!("a user's task failed: {error}"))??;
        for (turn, reply) in replies {
            turns[turn].push(reply);
        }
    }
    Ok(LoadRound {
        wall: start.elapsed(),
        turns,
    })
}

/// Sends the requests of one user, and returns the replies with their turns.
async fn user(
    plan: Arc<RoundPlan>,
    next: Arc<AtomicU32>,
) -> Result<Vec<(usize, MeasuredReply)>, String> {
    let mut replies = vec![];
    loop {
        let conversation = next.fetch_add(1, Ordering::Relaxed);
        if conversation >= plan.conversations {
            return Ok(replies);
        }

        let mut random = SplitMix(plan.seed.wrapping_add(u64::from(conversation)));
        let mut history = vec![];
        extend(&mut history, plan.prompt, plan.ids, &mut random);
        for turn in 0..plan.turns as usize {
            if turn > 0 {
                extend(&mut history, plan.turn_tokens, plan.ids, &mut random);
            }
            replies.push((turn, plan.client.complete(&history, plan.new).await?));
        }
    }
}

/// Appends random ids to a prompt.
fn extend(prompt: &mut Vec<u32>, count: u32, (first, last): (u32, u32), random: &mut SplitMix) {
    let size = u64::from(last - first) + 1;
    prompt.extend((0..count).map(|_| first + (random.next() % size) as u32));
}
