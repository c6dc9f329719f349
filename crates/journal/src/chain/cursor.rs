//! Cursor of a chain's reader, and the decision after each poll. Pure.

use std::collections::BTreeMap;

use payferry_domain::{Hash32, Timestamp};

/// Block with its link to the parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Block number.
    pub number: u64,
    /// Block hash.
    pub hash: Hash32,
    /// Hash of the parent block.
    pub parent_hash: Hash32,
    /// Block time.
    pub time: Timestamp,
}

/// Remembered blocks: contiguous, each the parent of the next, the last one the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    links: BTreeMap<u64, Link>,
}

/// Next action after a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// All blocks were read.
    UpToDate,
    /// The endpoint is behind the cursor, on the same branch as far as visible.
    Behind,
    /// Blocks up to this number are new.
    Read {
        /// Number of the newest one.
        to: u64,
    },
    /// A block that was read is orphaned.
    Reorganised,
}

/// Blocks that do not continue the remembered ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlinked {
    /// The first block has another parent: the remembered branch is orphaned.
    First,
    /// The blocks are not linked to each other: the chain changed during the read.
    Within,
}

/// Period without a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Block that ended the gap.
    pub block: u64,
    /// Time of the block before the gap.
    pub from: Timestamp,
    /// Time of the block that ended it.
    pub to: Timestamp,
}

impl Known {
    /// Builds the cursor from links in any order; drops those not linked to the newest.
    pub fn from_links(links: impl IntoIterator<Item = Link>) -> Self {
        let mut all: BTreeMap<u64, Link> = links.into_iter().map(|link| (link.number, link)).collect();
        let mut kept = BTreeMap::new();
        let mut expected: Option<(u64, Hash32)> = None;
        while let Some((number, link)) = all.pop_last() {
            if expected.is_some_and(|expected| expected != (number, link.hash)) {
                break;
            }
            kept.insert(number, link);
            let Some(below) = number.checked_sub(1) else { break };
            expected = Some((below, link.parent_hash));
        }
        Self { links: kept }
    }

    /// The cursor; `None` before the first block.
    pub fn tip(&self) -> Option<Link> {
        self.links.last_key_value().map(|(_, link)| *link)
    }

    /// Hash of the remembered block at this number.
    pub fn hash(&self, number: u64) -> Option<Hash32> {
        self.links.get(&number).map(|link| link.hash)
    }

    /// Remembered block at this number.
    pub fn link(&self, number: u64) -> Option<Link> {
        self.links.get(&number).copied()
    }

    /// All remembered blocks, the oldest first.
    pub fn links(&self) -> impl DoubleEndedIterator<Item = &Link> {
        self.links.values()
    }

    /// Checks that `blocks` (in order of number) continue the remembered ones and each other.
    pub fn check(&self, blocks: &[Link]) -> Result<(), Unlinked> {
        let follows =
            |parent: &Link, child: &Link| child.number == parent.number + 1 && child.parent_hash == parent.hash;
        if !blocks.windows(2).all(|pair| follows(&pair[0], &pair[1])) {
            return Err(Unlinked::Within);
        }
        match (self.tip(), blocks.first()) {
            (Some(tip), Some(first)) if !follows(&tip, first) => Err(Unlinked::First),
            _ => Ok(()),
        }
    }

    /// Adds checked blocks and drops those below `keep_from`, except the last one.
    pub fn extend(&mut self, blocks: &[Link], keep_from: u64) {
        self.links.extend(blocks.iter().map(|link| (link.number, *link)));
        if let Some(tip) = self.tip() {
            self.links = self.links.split_off(&keep_from.min(tip.number));
        }
    }

    /// Removes every block above `number` and returns their hashes.
    pub fn cut_above(&mut self, number: u64) -> Vec<Hash32> {
        self.links.split_off(&(number + 1)).into_values().map(|link| link.hash).collect()
    }

    /// Decides the next action from the chain's newest block and its block at the cursor's number (if it has one).
    pub fn next(&self, latest: (u64, Hash32), at_cursor: Option<Hash32>) -> Next {
        let Some(tip) = self.tip() else { return Next::Read { to: latest.0 } };
        if at_cursor.is_some_and(|hash| hash != tip.hash) {
            return Next::Reorganised;
        }
        if latest.0 < tip.number {
            let moved = self.hash(latest.0).is_some_and(|known| known != latest.1);
            return if moved { Next::Reorganised } else { Next::Behind };
        }
        match (latest.0 > tip.number, at_cursor) {
            // Without the block at the cursor, the branch is unknown.
            (_, None) => Next::Behind,
            (true, Some(_)) => Next::Read { to: latest.0 },
            (false, Some(_)) => Next::UpToDate,
        }
    }

    /// The newest remembered block that is canonical, given the chain's hashes at some of the remembered numbers.
    pub fn fork_point(&self, theirs: &BTreeMap<u64, Hash32>) -> Option<u64> {
        let same = |link: &&Link| theirs.get(&link.number) == Some(&link.hash);
        self.links().rev().find(same).map(|link| link.number)
    }
}

/// Gaps between consecutive blocks that are longer than `outage_secs`.
pub fn gaps<'a>(links: impl IntoIterator<Item = &'a Link>, outage_secs: i64) -> Vec<Gap> {
    let mut before: Option<Timestamp> = None;
    let mut found = Vec::new();
    for link in links {
        if let Some(from) = before
            && link.time.millis_since(from) > outage_secs.saturating_mul(1_000)
        {
            found.push(Gap { block: link.number, from, to: link.time });
        }
        before = Some(link.time);
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Block `number` on `branch`, with its parent on `parent_branch`.
    fn link(number: u64, branch: u8, parent_branch: u8) -> Link {
        let hash = |number: u64, branch: u8| {
            let mut bytes = [branch; 32];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            Hash32(bytes)
        };
        Link {
            number,
            hash: hash(number, branch),
            parent_hash: hash(number.saturating_sub(1), parent_branch),
            time: Timestamp::from_secs(i64::try_from(number).unwrap() * 2),
        }
    }

    fn branch(numbers: std::ops::RangeInclusive<u64>, id: u8) -> Vec<Link> {
        numbers.map(|number| link(number, id, id)).collect()
    }

    #[test]
    fn next_decides_the_action_for_each_poll() {
        let known = Known::from_links(branch(5..=10, 1));
        let at = |number, id| link(number, id, id).hash;
        assert_eq!(known.next((10, at(10, 1)), Some(at(10, 1))), Next::UpToDate);
        assert_eq!(known.next((12, at(12, 1)), Some(at(10, 1))), Next::Read { to: 12 });
        assert_eq!(known.next((10, at(10, 2)), Some(at(10, 2))), Next::Reorganised, "no higher block");
        assert_eq!(known.next((12, at(12, 2)), Some(at(10, 2))), Next::Reorganised);
        assert_eq!(known.next((8, at(8, 1)), None), Next::Behind, "a lagging endpoint orphans nothing");
        assert_eq!(known.next((8, at(8, 2)), None), Next::Reorganised, "a shorter branch");
        assert_eq!(known.next((3, at(3, 1)), None), Next::Behind);
        assert_eq!(known.next((12, at(12, 1)), None), Next::Behind, "a response without the cursor's block");
        assert_eq!(Known::default().next((3, at(3, 1)), None), Next::Read { to: 3 });
    }

    #[test]
    fn only_linked_blocks_are_accepted() {
        let known = Known::from_links(branch(5..=10, 1));
        assert_eq!(known.check(&branch(11..=12, 1)), Ok(()));
        assert_eq!(known.check(&branch(12..=13, 1)), Err(Unlinked::First), "a gap");
        assert_eq!(known.check(&[link(11, 2, 2)]), Err(Unlinked::First));
        assert_eq!(known.check(&[link(11, 1, 1), link(12, 2, 2)]), Err(Unlinked::Within));
        let torn = branch(1..=3, 1).into_iter().chain(branch(4..=6, 2));
        assert_eq!(Known::from_links(torn).links().map(|link| link.number).collect::<Vec<_>>(), [4, 5, 6]);
    }

    #[test]
    fn gap_is_longer_than_the_outage() {
        let mut links = branch(1..=3, 1);
        links[1].time = Timestamp::from_secs(32);
        links[2].time = Timestamp::from_secs(63);
        assert_eq!(gaps(&links, 30), [Gap { block: 3, from: Timestamp::from_secs(32), to: Timestamp::from_secs(63) }]);
    }

    proptest! {
        #[test]
        fn fork_point_is_the_last_common_block(first in 0_u64..5, len in 1_u64..30, fork in 0_u64..40) {
            let last = first + len;
            let mut known = Known::from_links(branch(first..=last, 1));
            let theirs: BTreeMap<u64, Hash32> = (first..=last)
                .map(|number| (number, link(number, if number <= fork { 1 } else { 2 }, 1).hash))
                .collect();
            let expected = (fork >= first).then(|| fork.min(last));
            prop_assert_eq!(known.fork_point(&theirs), expected);
            if let Some(point) = expected {
                let gone = known.cut_above(point);
                prop_assert_eq!(gone.len() as u64, last - point);
                prop_assert_eq!(known.tip().unwrap().number, point);
                prop_assert_eq!(known.check(&[link(point + 1, 2, 1)]), Ok(()));
            }
        }
    }
}
