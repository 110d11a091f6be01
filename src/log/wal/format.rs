//! Encodes and decodes the payloads of a log's records.
//!
//! The module above describes the layout. Decoding checks each record by itself; recovery checks
//! that records follow each other.

use crate::base::batch_format::DecodedBatch;
use crate::base::coding::{Decoder, put_varint};
use crate::base::key::{SEQUENCE_MAX, SequenceNumber};
use crate::log::record::format::Undecodable;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The kind of a log's first record.
pub(crate) const KIND_START: u8 = 1;
/// The kind of a write batch.
pub(crate) const KIND_BATCH: u8 = 2;

/// The kind of the record that names the tables of bulk loads.
pub(crate) const KIND_LOADS: u8 = 3;

/// The id of a table of a bulk load, and the sequence of all its entries.
pub(crate) type LoadedTable = (u64, SequenceNumber);

/// The identity of a database, which distinguishes it from others and from its copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatabaseIdentity {
    /// Drawn at random when the database was created.
    pub id: u128,
    /// Raised whenever older logs must not follow: by a repair, and by an update of a checkpoint.
    pub epoch: u64,
}

impl DatabaseIdentity {
    /// The identity of a database that is created now.
    pub(crate) fn random() -> Self {
        let [high, low] = [(), ()].map(|()| random());
        DatabaseIdentity { id: u128::from(high) << 64 | u128::from(low), epoch: 1 }
    }

    /// The identity of the same database in the next epoch; a new one if no file says the id, or
    /// after the last epoch, which only a forged file has.
    #[must_use]
    pub(crate) fn next_epoch(self) -> Self {
        match (self.id, self.epoch.checked_add(1)) {
            (0, _) | (_, None) => DatabaseIdentity::random(),
            (id, Some(epoch)) => DatabaseIdentity { id, epoch },
        }
    }
}

/// A random number.
pub(crate) fn random() -> u64 {
    // `RandomState` is seeded from the system.
    RandomState::new().build_hasher().finish()
}

/// The first record of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WalStart {
    /// The last sequence known to be durable when the log was created.
    pub synced_through: SequenceNumber,
    /// The number of the previous log; 0 if there is none.
    pub previous_log: u64,
    /// The last sequence in the previous logs.
    pub previous_last_sequence: SequenceNumber,
    /// The sequence of the first write in this log. It is above `previous_last_sequence`, by more
    /// than one only if some sequences were used and are in no log.
    pub first_sequence: SequenceNumber,
    /// The current manifest when the log was created. If opening creates the log, it is the
    /// manifest that opening is about to install.
    pub manifest_number: u64,
    /// The durable bytes of that manifest.
    pub manifest_synced_bytes: u64,
    /// The database that the log is of.
    pub database: DatabaseIdentity,
}

/// A decoded record of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalRecord<'a> {
    /// The last sequence known to be durable when the record was written.
    pub synced_through: SequenceNumber,
    /// The contents of the record.
    pub body: WalBody<'a>,
}

/// The contents of a record of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WalBody<'a> {
    /// The first record.
    Start(WalStart),
    /// Writes.
    Batch(DecodedBatch<'a>),
    /// The tables of bulk loads that were live when the log was created.
    Loads(DecodedLoads<'a>),
}

/// The tables that a record names; all of it decodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecodedLoads<'a>(&'a [u8]);

impl<'a> DecodedLoads<'a> {
    /// `None` if `bytes` are malformed.
    fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        while !decoder.is_empty() {
            let (_, sequence) = loaded_table(&mut decoder)?;
            (1..=SEQUENCE_MAX).contains(&sequence).then_some(())?;
        }
        (!bytes.is_empty()).then_some(DecodedLoads(bytes))
    }

    /// The tables, in the order of the record.
    pub(crate) fn tables(self) -> impl Iterator<Item = LoadedTable> + use<'a> {
        let mut decoder = Decoder::new(self.0);
        std::iter::from_fn(move || loaded_table(&mut decoder))
    }
}

fn loaded_table(decoder: &mut Decoder<'_>) -> Option<LoadedTable> {
    Some((decoder.u64()?, decoder.varint()?))
}

/// Appends the payload of a start record.
pub(crate) fn put_start(dst: &mut Vec<u8>, start: &WalStart) {
    for field in [
        start.synced_through,
        start.previous_log,
        start.previous_last_sequence,
        start.first_sequence,
        start.manifest_number,
        start.manifest_synced_bytes,
        start.database.epoch,
    ] {
        put_varint(dst, field);
    }
    dst.extend_from_slice(&start.database.id.to_le_bytes());
    dst.push(KIND_START);
}

/// Appends the payload of a record that names `tables`, of which there is one at least.
pub(crate) fn put_loads(dst: &mut Vec<u8>, synced_through: SequenceNumber, tables: &[LoadedTable]) {
    debug_assert!(!tables.is_empty());
    put_varint(dst, synced_through);
    for (table_id, sequence) in tables {
        dst.extend_from_slice(&table_id.to_le_bytes());
        put_varint(dst, *sequence);
    }
    dst.push(KIND_LOADS);
}

/// Decodes the payload of a record and checks all of it.
pub(crate) fn decode(payload: &[u8]) -> Result<WalRecord<'_>, Undecodable> {
    let damaged = |what: &str| Undecodable::Damaged(what.into());
    let Some((&kind, front)) = payload.split_last() else {
        return Err(damaged("an empty record"));
    };
    let mut decoder = Decoder::new(front);
    let Some(synced_through) = decoder.varint() else {
        return Err(damaged("a record without its synced-through sequence"));
    };
    let body = match kind {
        KIND_START => {
            let malformed = || damaged("a malformed start record");
            let [previous_log, previous_last_sequence, first_sequence, number, bytes, epoch] =
                varints(&mut decoder).ok_or_else(malformed)?;
            let id = decoder.rest().try_into().map_err(|_| malformed())?;
            // A log that is created after the last sequence was used names the one after it.
            if synced_through > previous_last_sequence
                || previous_last_sequence >= first_sequence
                || first_sequence > SEQUENCE_MAX + 1
            {
                return Err(damaged("a start record whose sequences are out of order"));
            }
            WalBody::Start(WalStart {
                synced_through,
                previous_log,
                previous_last_sequence,
                first_sequence,
                manifest_number: number,
                manifest_synced_bytes: bytes,
                database: DatabaseIdentity { id: u128::from_le_bytes(id), epoch },
            })
        }
        KIND_BATCH => {
            let batch = DecodedBatch::decode(decoder.rest()).map_err(Undecodable::Damaged)?;
            let is_numbered = batch.sequence > 0 && batch.last_sequence() <= SEQUENCE_MAX;
            if batch.count == 0 || !is_numbered || synced_through >= batch.sequence {
                return Err(damaged("a write batch with impossible sequences"));
            }
            WalBody::Batch(batch)
        }
        KIND_LOADS => {
            let loads = DecodedLoads::decode(decoder.rest());
            WalBody::Loads(loads.ok_or_else(|| damaged("a malformed record of bulk loads"))?)
        }
        other => return Err(Undecodable::Unknown(format!("a record of unknown kind {other}"))),
    };
    Ok(WalRecord { synced_through, body })
}

fn varints<const N: usize>(decoder: &mut Decoder<'_>) -> Option<[u64; N]> {
    let mut fields = [0; N];
    for field in &mut fields {
        *field = decoder.varint()?;
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::batch_format::put_batch_header;
    use crate::base::write_batch::WriteBatch;
    use proptest::prelude::*;

    const START: WalStart = WalStart {
        synced_through: 300,
        previous_log: 4,
        previous_last_sequence: 301,
        first_sequence: 303,
        manifest_number: 2,
        manifest_synced_bytes: 1000,
        database: DatabaseIdentity { id: 0x0102, epoch: 5 },
    };

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn batch_payload(synced_through: u64, sequence: u64, batch: &WriteBatch) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, synced_through);
        put_batch_header(&mut bytes, sequence, batch.len() as u32);
        bytes.extend_from_slice(&batch.entries);
        bytes.push(KIND_BATCH);
        bytes
    }

    #[test]
    fn payloads_have_known_bytes() {
        let mut start = Vec::new();
        put_start(&mut start, &START);
        let identity = "0502010000000000000000000000000000";
        assert_eq!(hex(&start), format!("ac0204ad02af0202e807{identity}01"));
        let record = decode(&start).unwrap();
        assert!(matches!(record.body, WalBody::Start(back) if back == START));
        assert_eq!(record.synced_through, 300);

        let mut batch = WriteBatch::new();
        batch.put("ada", "1815").delete("x");
        let payload = batch_payload(300, 303, &batch);
        assert_eq!(
            hex(&payload),
            "ac022f010000000000000200000001036164610431383135000178 02".replace(' ', "")
        );
        let record = decode(&payload).unwrap();
        let WalBody::Batch(back) = record.body else { panic!("{record:?}") };
        assert_eq!((back.sequence, back.last_sequence()), (303, 304));

        let tables = [(0x0102, 300), (u64::MAX, 1)];
        let mut loads = Vec::new();
        put_loads(&mut loads, 300, &tables);
        assert_eq!(hex(&loads), "ac020201000000000000ac02ffffffffffffffff0103");
        let record = decode(&loads).unwrap();
        let WalBody::Loads(back) = record.body else { panic!("{record:?}") };
        assert_eq!(back.tables().collect::<Vec<_>>(), tables);
    }

    #[test]
    fn impossible_records_are_refused() {
        let mut one = WriteBatch::new();
        one.put("key", "value");
        let damaged = |bytes: &[u8]| matches!(decode(bytes), Err(Undecodable::Damaged(_)));
        assert!(damaged(&[]) && damaged(&[KIND_BATCH]) && damaged(&[KIND_START]));
        assert!(damaged(&batch_payload(5, 5, &one)), "durable before it was written");
        assert!(damaged(&batch_payload(0, 0, &one)), "sequences begin at 1");
        assert!(damaged(&batch_payload(0, SEQUENCE_MAX + 1, &one)));
        assert!(damaged(&batch_payload(0, 1, &WriteBatch::new())), "no entries");
        let mut backwards = Vec::new();
        put_start(&mut backwards, &WalStart { first_sequence: 301, ..START });
        assert!(damaged(&backwards));
        let mut claims = Vec::new();
        put_start(&mut claims, &WalStart { synced_through: 302, ..START });
        assert!(damaged(&claims), "nobody wrote what it says is durable");
        let mut longer = Vec::new();
        put_start(&mut longer, &START);
        longer.insert(0, 1);
        assert!(damaged(&longer));
        for loads in
            [&[0][..], &[0, 1], &[0, 1, 2, 3, 4, 5, 6, 7, 8], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 0]]
        {
            assert!(damaged(&[loads, &[KIND_LOADS]].concat()), "{loads:?}");
        }
        for kind in [0, 4, 255] {
            assert!(matches!(decode(&[1, 1, kind]), Err(Undecodable::Unknown(_))));
        }
    }

    proptest! {
        #[test]
        fn random_payloads_never_panic(mut bytes: Vec<u8>, kind in 0u8..6) {
            bytes.push(kind);
            let _ = decode(&bytes);
        }
    }
}
