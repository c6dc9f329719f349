//! Where a chain's reader stands, and what a look at the chain means for it. Pure.

use std::collections::BTreeMap;

use payferry_domain::{Hash32, Timestamp};

/// A block as a link of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Block number.
    pub number: u64,
    /// Its hash.
    pub hash: Hash32,
    /// The hash of the block before it.
    pub parent_hash: Hash32,
    /// Its time.
    pub time: Timestamp,
}

/// The blocks read and still remembered: gapless, each the parent of the next, the last one the cursor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    links: BTreeMap<u64, Link>,
}

/// What is to be done after a look at the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Everything there is was read.
    UpToDate,
    /// The endpoint is behind what was read, on the same branch as far as it shows.
    Behind,
    /// Blocks up to this number are new.
    Read {
        /// The newest of them.
        to: u64,
    },
    /// A block that was read is not of the chain any more.
    Reorganised,
}

/// Blocks that do not belong onto what is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlinked {
    /// The first of them has another parent: the known branch was left.
    First,
    /// They are not of one branch among themselves: the chain moved while it was read.
    Within,
}

/// A time in which the chain made no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The block that ended it.
    pub block: u64,
    /// The time of the block before.
    pub from: Timestamp,
    /// The time of the block that ended it.
    pub to: Timestamp,
}

impl Known {
    /// From links in any order; what is not linked down from the newest is dropped.
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

    /// The cursor; `None` before anything was read.
    pub fn tip(&self) -> Option<Link> {
        self.links.last_key_value().map(|(_, link)| *link)
    }

    /// The hash read at this number, if it is remembered.
    pub fn hash(&self, number: u64) -> Option<Hash32> {
        self.links.get(&number).map(|link| link.hash)
    }

    /// The block read at this number, if it is remembered.
    pub fn link(&self, number: u64) -> Option<Link> {
        self.links.get(&number).copied()
    }

    /// All that is remembered, the oldest first.
    pub fn links(&self) -> impl DoubleEndedIterator<Item = &Link> {
        self.links.values()
    }

    /// Whether `blocks` (by number) continue what is known, and each other.
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

    /// Adds blocks that were checked, and forgets those below `keep_from`, but never the last one.
    pub fn extend(&mut self, blocks: &[Link], keep_from: u64) {
        self.links.extend(blocks.iter().map(|link| (link.number, *link)));
        if let Some(tip) = self.tip() {
            self.links = self.links.split_off(&keep_from.min(tip.number));
        }
    }

    /// Takes out every block above `number` and answers their hashes.
    pub fn cut_above(&mut self, number: u64) -> Vec<Hash32> {
        self.links.split_off(&(number + 1)).into_values().map(|link| link.hash).collect()
    }

    /// What a look at the chain means: its newest block, and its block at the cursor's number (if it has one).
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
            // Without the cursor's own block nothing can be said about the branch.
            (_, None) => Next::Behind,
            (true, Some(_)) => Next::Read { to: latest.0 },
            (false, Some(_)) => Next::UpToDate,
        }
    }

    /// The newest known block that is of the chain, given the chain's hashes at some of the known numbers.
    pub fn fork_point(&self, theirs: &BTreeMap<u64, Hash32>) -> Option<u64> {
        let same = |link: &&Link| theirs.get(&link.number) == Some(&link.hash);
        self.links().rev().find(same).map(|link| link.number)
    }
}

/// Times longer than `outage_secs` between blocks and the ones before them.
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
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Block `number` on branch `branch`, whose parent is on `parent_branch`.
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
    fn a_look_says_what_to_do() {
        let known = Known::from_links(branch(5..=10, 1));
        let at = |number, id| link(number, id, id).hash;
        assert_eq!(known.next((10, at(10, 1)), Some(at(10, 1))), Next::UpToDate);
        assert_eq!(known.next((12, at(12, 1)), Some(at(10, 1))), Next::Read { to: 12 });
        assert_eq!(known.next((10, at(10, 2)), Some(at(10, 2))), Next::Reorganised, "no higher block");
        assert_eq!(known.next((12, at(12, 2)), Some(at(10, 2))), Next::Reorganised);
        assert_eq!(known.next((8, at(8, 1)), None), Next::Behind, "a lagging endpoint takes nothing back");
        assert_eq!(known.next((8, at(8, 2)), None), Next::Reorganised, "a shorter branch");
        assert_eq!(known.next((3, at(3, 1)), None), Next::Behind);
        assert_eq!(known.next((12, at(12, 1)), None), Next::Behind, "an answer without the cursor's block");
        assert_eq!(Known::default().next((3, at(3, 1)), None), Next::Read { to: 3 });
    }

    #[test]
    fn only_what_is_linked_is_taken() {
        let known = Known::from_links(branch(5..=10, 1));
        assert_eq!(known.check(&branch(11..=12, 1)), Ok(()));
        assert_eq!(known.check(&branch(12..=13, 1)), Err(Unlinked::First), "a gap");
        assert_eq!(known.check(&[link(11, 2, 2)]), Err(Unlinked::First));
        assert_eq!(known.check(&[link(11, 1, 1), link(12, 2, 2)]), Err(Unlinked::Within));
        let torn = branch(1..=3, 1).into_iter().chain(branch(4..=6, 2));
        assert_eq!(Known::from_links(torn).links().map(|link| link.number).collect::<Vec<_>>(), [4, 5, 6]);
    }

    #[test]
    fn a_gap_is_longer_than_the_outage() {
        let mut links = branch(1..=3, 1);
        links[1].time = Timestamp::from_secs(32);
        links[2].time = Timestamp::from_secs(63);
        assert_eq!(gaps(&links, 30), [Gap { block: 3, from: Timestamp::from_secs(32), to: Timestamp::from_secs(63) }]);
    }

    proptest! {
        #[test]
        fn the_fork_point_is_the_last_common_block(first in 0_u64..5, len in 1_u64..30, fork in 0_u64..40) {
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
