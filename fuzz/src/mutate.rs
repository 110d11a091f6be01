//! Changes good input: bytes, integers, runs of bytes; in records and bundles also their contents,
//! so that frames stay whole around changed contents.
//!
//! Checksums are repaired by the targets, not here.

use crate::bundle::{Files, pack, unpack};
use crate::rng::Rng;
use crate::rocksdb;
use crate::seal::{put_varint, record_file};
use crate::targets::ROCKSDB_DATABASE;

/// No input grows beyond this.
const BYTES_MAX: usize = 64 << 10;

/// Numbers at which limits lie.
const NUMBERS: [u64; 20] = [
    0,
    1,
    2,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff0,
    0xffff_ffff,
    (1 << 56) - 1,
    1 << 56,
    u64::MAX - 4,
    u64::MAX,
];

/// An input for `target`, made from `input`; `other` is a second one to take pieces from.
pub fn mutate(target: &str, input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + rng.below(4) {
        bytes = match target {
            "directory" | ROCKSDB_DATABASE if rng.below(8) > 0 => {
                in_bundle(&bytes, target == ROCKSDB_DATABASE, rng)
            }
            "wal" | "manifest" if rng.below(2) > 0 => in_records(&bytes, rng),
            _ => {
                in_bytes(&mut bytes, other, rng);
                bytes
            }
        };
        bytes.truncate(BYTES_MAX);
    }
    bytes
}

fn in_bytes(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    if bytes.is_empty() {
        bytes.push(rng.next() as u8);
    }
    let at = rng.below(bytes.len());
    let run = (1 + rng.below(16)).min(bytes.len() - at);
    match rng.below(12) {
        0..3 => bytes[at] ^= 1 << rng.below(8),
        3 => bytes[at] = *rng.pick(&[0, 1, 2, 0x7f, 0x80, 0xfe, 0xff]),
        4 => bytes[at] = bytes[at].wrapping_add(*rng.pick(&[1, 255, 16])),
        5 => {
            let number = rng.pick(&NUMBERS).to_le_bytes();
            let width = *rng.pick(&[2, 4, 8]);
            let len = width.min(bytes.len() - at);
            bytes[at..at + len].copy_from_slice(&number[..len]);
        }
        6 => {
            let mut varint = Vec::new();
            put_varint(&mut varint, *rng.pick(&NUMBERS));
            let replaced = rng.below(3).min(bytes.len() - at);
            bytes.splice(at..at + replaced, varint);
        }
        7 => {
            bytes.drain(at..at + run);
        }
        8 => {
            let copy = bytes[at..at + run].to_vec();
            bytes.splice(at..at, copy);
        }
        9 => bytes[at..at + run].fill(*rng.pick(&[0, 0xff])),
        10 if !other.is_empty() => {
            let from = rng.below(other.len());
            let len = (1 + rng.below(64)).min(other.len() - from);
            let replaced = if rng.below(2) == 0 { len.min(bytes.len() - at) } else { 0 };
            bytes.splice(at..at + replaced, other[from..from + len].iter().copied());
        }
        _ => bytes.truncate(at),
    }
}

/// The payloads of the records of a log or manifest, as far as frames hold.
pub fn records_of(file: &[u8]) -> Vec<Vec<u8>> {
    let mut payloads: Vec<Vec<u8>> = Vec::new();
    let mut at = 20;
    while let Some(header) = file.get(at..at + 11) {
        let len = usize::from(u16::from_le_bytes([header[4], header[5]]));
        let Some(payload) = file.get(at + 11..at + 11 + len) else { break };
        match header[6] {
            1 | 2 => payloads.push(payload.to_vec()),
            3 | 4 if !payloads.is_empty() => {
                payloads.last_mut().expect("not empty").extend_from_slice(payload);
            }
            _ => break,
        }
        at += 11 + len;
        let room = (32 << 10) - at % (32 << 10);
        at += if room <= 11 { room } else { 0 };
    }
    payloads
}

/// Changes what records hold, how many there are and their order.
fn in_records(file: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut payloads = records_of(file);
    let (Some(front), false) = (file.first_chunk::<16>(), payloads.is_empty()) else {
        return file.to_vec();
    };
    let at = rng.below(payloads.len());
    let other = payloads[rng.below(payloads.len())].clone();
    match rng.below(8) {
        0 => payloads.insert(at, other),
        1 => {
            payloads.remove(at);
        }
        2 => {
            let next = (at + 1) % payloads.len();
            payloads.swap(at, next);
        }
        _ => in_bytes(&mut payloads[at], &other, rng),
    }
    let magic = front.first_chunk().expect("16 bytes");
    let number = u32::from_le_bytes(*front.last_chunk().expect("16 bytes"));
    record_file(magic, number, &payloads)
}

/// Changes files of a directory, their names, and which there are.
fn in_bundle(bytes: &[u8], is_rocksdb: bool, rng: &mut Rng) -> Vec<u8> {
    let mut files: Files = unpack(bytes);
    if files.is_empty() {
        return bytes.to_vec();
    }
    let names: Vec<String> = files.keys().cloned().collect();
    let (name, other) = (rng.pick(&names).clone(), rng.pick(&names).clone());
    let contents = files[&name].clone();
    match rng.below(12) {
        0 => {
            files.remove(&name);
        }
        1 => {
            let replaced = files.insert(other, contents).unwrap_or_default();
            files.insert(name, replaced);
        }
        2 => {
            let number = rng.pick(&NUMBERS) % 30 + rng.pick(&[0, u64::MAX - 30, 1 << 40]);
            let kind = rng.pick(&["wal", "sst", "tmp", "log"]);
            files.insert(format!("{number:06}.{kind}"), contents);
        }
        3 => {
            files.insert(name, Vec::new());
        }
        4 | 5 if !is_rocksdb && (name.starts_with("MANIFEST-") || name.ends_with(".wal")) => {
            files.insert(name, in_records(&contents, rng));
        }
        4..7 if is_rocksdb && rocksdb::is_record_file(&name) => {
            let from = files[&other].clone();
            let change = |record: &mut Vec<u8>, rng: &mut Rng| in_bytes(record, &from, rng);
            files.insert(name, rocksdb::in_records(&contents, rng, change));
        }
        _ => {
            let from = files[&other].clone();
            in_bytes(files.get_mut(&name).expect("a name of the bundle"), &from, rng);
        }
    }
    pack(&files)
}
