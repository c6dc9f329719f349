//! The append-only file: its records, and the thread that writes them.
//!
//! The file starts with eight bytes that identify the format. A record is `length: u32, crc32: u32, payload`,
//! little-endian. Records that arrive together share one fsync. An incomplete record at the end of the file is ignored.

use std::fs::File;
use std::io::Write as _;
use std::sync::mpsc;
use std::thread::JoinHandle;

use alloy::primitives::{Address, B256, Bytes, U256};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::error::ChainError;
use crate::state::Control;

pub(crate) const MAGIC: &[u8; 8] = b"PFCHAIN1";

/// Maximum number of jobs that share one fsync.
const GROUP_MAX: usize = 8_192;

/// A change, in order of occurrence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The first record.
    Genesis { fingerprint: B256, timestamp: u64 },
    /// A transaction entered the mempool.
    Accepted { sender: Address, raw: Vec<u8> },
    /// A block was sealed on the head.
    Block(BlockRecord),
    /// The last blocks were replaced by these.
    Reorg { depth: u64, remine: bool, blocks: Vec<BlockRecord> },
    /// The state was changed from outside.
    Control(Control),
    /// The clock was moved.
    Clock { offset_secs: i64 },
    /// A transaction was taken out of the mempool.
    Removed { hash: B256 },
    /// The next block was given a base fee.
    BaseFee { wei: u64 },
    /// A snapshot was taken.
    Snapshot,
    /// The chain was reverted to a snapshot.
    Revert { snapshot: u64 },
}

/// A block: the fields that cannot be derived, and its hash to check the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockRecord {
    pub number: u64,
    pub hash: B256,
    pub timestamp: u64,
    pub base_fee: u64,
    pub salt: u64,
    pub offset_secs: i64,
    /// Hashes of transactions that were accepted before.
    pub txs: Vec<B256>,
}

/// Reports when appended records are on disk.
pub(crate) struct Written(Option<oneshot::Receiver<Result<(), ChainError>>>);

impl Written {
    /// For a chain in memory.
    pub(crate) fn nowhere() -> Self {
        Self(None)
    }

    pub(crate) async fn wait(self) -> Result<(), ChainError> {
        match self.0 {
            Some(receiver) => receiver.await.unwrap_or(Err(ChainError::Closed)),
            None => Ok(()),
        }
    }

    /// For callers on a blocking thread.
    pub(crate) fn wait_blocking(self) -> Result<(), ChainError> {
        match self.0 {
            Some(receiver) => receiver.blocking_recv().unwrap_or(Err(ChainError::Closed)),
            None => Ok(()),
        }
    }
}

struct Job {
    bytes: Vec<u8>,
    done: oneshot::Sender<Result<(), ChainError>>,
}

/// Writes in the order of the calls to `append`.
pub(crate) struct Store {
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Store {
    /// Starts the thread. `file` must be positioned at its end and locked by this process.
    pub(crate) fn start(file: File) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        let thread =
            std::thread::Builder::new().name("devchain-store".into()).spawn(move || write_all(file, &queue))?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn append<'a>(&self, records: impl IntoIterator<Item = &'a Record>) -> Written {
        let mut bytes = Vec::new();
        for record in records {
            frame(record, &mut bytes);
        }
        let (done, receiver) = oneshot::channel();
        if let Some(jobs) = self.jobs.lock().as_ref() {
            // If the thread has ended, `done` is dropped, which means closed.
            let _ = jobs.send(Job { bytes, done });
        }
        Written(Some(receiver))
    }

    /// Writes the queue and closes the file.
    pub(crate) fn close(&self) {
        drop(self.jobs.lock().take());
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }
}

fn write_all(mut file: File, queue: &mpsc::Receiver<Job>) {
    let mut failed: Option<ChainError> = None;
    while let Ok(first) = queue.recv() {
        let mut group = vec![first];
        while group.len() < GROUP_MAX
            && let Ok(job) = queue.try_recv()
        {
            group.push(job);
        }
        // After a failed write the end of the file is unknown, so nothing more may be written.
        if failed.is_none() {
            let parts: Vec<&[u8]> = group.iter().map(|job| job.bytes.as_slice()).collect();
            let bytes = parts.concat();
            if let Err(error) = file.write_all(&bytes).and_then(|()| file.sync_data()) {
                tracing::error!(%error, "devchain file cannot be written");
                failed = Some(ChainError::Store(error.to_string()));
            }
        }
        for job in group {
            let _ = job.done.send(failed.clone().map_or(Ok(()), Err));
        }
    }
}

/// Appends the record with its length and checksum.
pub(crate) fn frame(record: &Record, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    encode(record, out);
    let payload = &out[start + 8..];
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let crc = crc32fast::hash(payload);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// Decodes the first record; `None` if it is incomplete or damaged.
pub(crate) fn unframe(bytes: &[u8]) -> Option<(Record, usize)> {
    let length = usize::try_from(u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?)).ok()?;
    let crc = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    let payload = bytes.get(8..8 + length)?;
    if length == 0 || crc32fast::hash(payload) != crc {
        return None;
    }
    let mut input = Input(payload);
    let record = decode(&mut input)?;
    input.0.is_empty().then_some((record, 8 + length))
}

fn encode(record: &Record, out: &mut Vec<u8>) {
    let mut put = |tag: u8, parts: &[&[u8]]| {
        out.push(tag);
        for part in parts {
            out.extend_from_slice(part);
        }
    };
    match record {
        Record::Genesis { fingerprint, timestamp } => put(0, &[fingerprint.as_slice(), &timestamp.to_le_bytes()]),
        Record::Accepted { sender, raw } => put(1, &[sender.as_slice(), raw]),
        Record::Block(block) => put(2, &[&encode_block(block)]),
        Record::Reorg { depth, remine, blocks } => {
            let blocks: Vec<Vec<u8>> = blocks.iter().map(encode_block).collect();
            put(3, &[&depth.to_le_bytes(), &[u8::from(*remine)], &blocks.concat()]);
        }
        Record::Control(Control::Balance(address, wei)) => put(4, &[address.as_slice(), &wei.to_le_bytes::<32>()]),
        Record::Control(Control::Nonce(address, nonce)) => put(5, &[address.as_slice(), &nonce.to_le_bytes()]),
        Record::Control(Control::Code(address, code)) => put(6, &[address.as_slice(), code]),
        Record::Control(Control::Slot(address, slot, value)) => {
            put(7, &[address.as_slice(), &slot.to_le_bytes::<32>(), &value.to_le_bytes::<32>()]);
        }
        Record::Clock { offset_secs } => put(8, &[&offset_secs.to_le_bytes()]),
        Record::Removed { hash } => put(9, &[hash.as_slice()]),
        Record::BaseFee { wei } => put(10, &[&wei.to_le_bytes()]),
        Record::Snapshot => put(11, &[]),
        Record::Revert { snapshot } => put(12, &[&snapshot.to_le_bytes()]),
    }
}

fn encode_block(block: &BlockRecord) -> Vec<u8> {
    let BlockRecord { number, hash, timestamp, base_fee, salt, offset_secs, txs } = block;
    let mut bytes =
        [&number.to_le_bytes(), hash.as_slice(), &timestamp.to_le_bytes(), &base_fee.to_le_bytes()].concat();
    bytes.extend([salt.to_le_bytes(), offset_secs.to_le_bytes(), (txs.len() as u64).to_le_bytes()].concat());
    bytes.extend(txs.iter().flat_map(|hash| hash.0));
    bytes
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn address(&mut self) -> Option<Address> {
        self.take().map(Address::new)
    }

    fn hash(&mut self) -> Option<B256> {
        self.take().map(B256::new)
    }

    fn word(&mut self) -> Option<U256> {
        self.take().map(U256::from_le_bytes::<32>)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

fn decode(input: &mut Input<'_>) -> Option<Record> {
    let [tag] = input.take()?;
    Some(match tag {
        0 => Record::Genesis { fingerprint: input.hash()?, timestamp: input.number()? },
        1 => Record::Accepted { sender: input.address()?, raw: input.rest().to_vec() },
        2 => Record::Block(decode_block(input)?),
        3 => {
            let depth = input.number()?;
            let [remine] = input.take()?;
            let mut blocks = Vec::new();
            while !input.0.is_empty() {
                blocks.push(decode_block(input)?);
            }
            Record::Reorg { depth, remine: remine != 0, blocks }
        }
        4 => Record::Control(Control::Balance(input.address()?, input.word()?)),
        5 => Record::Control(Control::Nonce(input.address()?, input.number()?)),
        6 => Record::Control(Control::Code(input.address()?, Bytes::copy_from_slice(input.rest()))),
        7 => Record::Control(Control::Slot(input.address()?, input.word()?, input.word()?)),
        8 => Record::Clock { offset_secs: input.take().map(i64::from_le_bytes)? },
        9 => Record::Removed { hash: input.hash()? },
        10 => Record::BaseFee { wei: input.number()? },
        11 => Record::Snapshot,
        12 => Record::Revert { snapshot: input.number()? },
        _ => return None,
    })
}

fn decode_block(input: &mut Input<'_>) -> Option<BlockRecord> {
    let number = input.number()?;
    let hash = input.hash()?;
    let timestamp = input.number()?;
    let base_fee = input.number()?;
    let salt = input.number()?;
    let offset_secs = input.take().map(i64::from_le_bytes)?;
    let txs = (0..input.number()?).map(|_| input.hash()).collect::<Option<_>>()?;
    Some(BlockRecord { number, hash, timestamp, base_fee, salt, offset_secs, txs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_round_trips() {
        let block = BlockRecord {
            number: 7,
            hash: B256::repeat_byte(1),
            timestamp: 2,
            base_fee: 3,
            salt: 4,
            offset_secs: -5,
            txs: vec![B256::repeat_byte(6), B256::repeat_byte(7)],
        };
        let address = Address::repeat_byte(8);
        let records = [
            Record::Genesis { fingerprint: B256::repeat_byte(9), timestamp: 10 },
            Record::Accepted { sender: address, raw: vec![1, 2, 3] },
            Record::Block(block.clone()),
            Record::Reorg { depth: 2, remine: true, blocks: vec![block.clone(), block] },
            Record::Control(Control::Balance(address, U256::MAX)),
            Record::Control(Control::Nonce(address, 11)),
            Record::Control(Control::Code(address, Bytes::from_static(&[0xfe]))),
            Record::Control(Control::Slot(address, U256::from(1), U256::from(2))),
            Record::Clock { offset_secs: -12 },
            Record::Removed { hash: B256::repeat_byte(13) },
            Record::BaseFee { wei: 14 },
            Record::Snapshot,
            Record::Revert { snapshot: 15 },
        ];
        for record in records {
            let mut bytes = Vec::new();
            frame(&record, &mut bytes);
            assert_eq!(unframe(&bytes), Some((record, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(unframe(&bytes[..cut]), None);
            }
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            assert_eq!(unframe(&bytes), None);
        }
    }
}
