//! A reader of databases written from docs/format.md alone: it shares no code with siftdb.
//!
//! [`read_database`] takes the files of a database and gives what a scan of each keyspace shows. It
//! checks every checksum that the document names. It is slow, and panics at the first bad byte: its
//! purpose is to show that the document says enough.

use std::collections::{BTreeMap, BTreeSet};

/// The files of a database by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The entries of each keyspace, by its name.
pub type Contents = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

/// Section "Conventions": fields, front to back.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at_checked(count).expect("a field that is cut off");
        self.0 = rest;
        front
    }

    fn number(&mut self, bytes: usize) -> u64 {
        let taken = self.take(bytes);
        taken.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn varint(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.number(1);
            number |= (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return number;
            }
            shift += 7;
        }
    }

    fn size(&mut self) -> usize {
        self.varint() as usize
    }

    /// Bytes with a length.
    fn bytes(&mut self) -> &'a [u8] {
        let length = self.size();
        self.take(length)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The masked CRC-32 of the parts.
fn checksum(parts: &[&[u8]]) -> u64 {
    let mut crc = u32::MAX;
    for byte in parts.iter().flat_map(|part| part.iter()) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    u64::from((!crc).rotate_right(15).wrapping_add(0xa282_ead8))
}

/// Snappy's own format: the length, then literals and copies.
fn decompressed(stored: &[u8]) -> Vec<u8> {
    let mut from = Fields(stored);
    let length = from.size();
    let mut to = Vec::new();
    while !from.is_empty() {
        let tag = from.number(1) as usize;
        let (offset, count) = match tag & 3 {
            0 => {
                let count = match tag >> 2 {
                    short @ 0..60 => short,
                    long => from.number(long - 59) as usize,
                };
                to.extend_from_slice(from.take(count + 1));
                continue;
            }
            1 => (tag >> 5 << 8 | from.number(1) as usize, (tag >> 2 & 7) + 4),
            2 => (from.number(2) as usize, (tag >> 2) + 1),
            _ => (from.number(4) as usize, (tag >> 2) + 1),
        };
        for _ in 0..count {
            to.push(to[to.len() - offset]);
        }
    }
    assert_eq!(to.len(), length);
    to
}

/// Sections "Table" and "Block prefix and trailer".
struct Table<'a> {
    file: &'a [u8],
    id: u64,
}

/// Where a block's contents are.
type Handle = (usize, usize);

const DATA: u8 = 1;
const PROPERTIES: u8 = 4;
const METAINDEX: u8 = 5;
const INDEX: u8 = 6;
const INDEX_PARTITION: u8 = 8;
const RANGE_DELETES: u8 = 7;

fn handle(mut fields: Fields<'_>) -> Handle {
    let handle = (fields.size(), fields.size());
    assert!(fields.is_empty());
    handle
}

impl Table<'_> {
    fn contents(&self, (offset, size): Handle, kind: u8) -> Vec<u8> {
        let place = (offset as u64).to_le_bytes();
        let identity = [&[kind][..], &(size as u32).to_le_bytes(), &self.id.to_le_bytes(), &place];
        let mut prefix = Fields(&self.file[offset - 8..offset]);
        assert_eq!((prefix.number(4), prefix.number(1)), (size as u64, u64::from(kind)));
        assert_eq!(prefix.number(3), checksum(&identity) & 0xff_ffff);
        let stored = &self.file[offset..offset + size];
        let mut trailer = Fields(&self.file[offset + size..offset + size + 5]);
        let compression = trailer.number(1) as u8;
        let sum =
            checksum(&[stored, &[compression], identity[0], identity[1], identity[2], &place]);
        assert_eq!(trailer.number(4), sum);
        match compression {
            0 => stored.to_vec(),
            1 => decompressed(stored),
            other => panic!("compression {other}"),
        }
    }

    /// The entries of a block: keys and values, and the trailer in a data block.
    fn block(&self, handle: Handle, kind: u8) -> Vec<(Vec<u8>, Option<u64>, Vec<u8>)> {
        let contents = self.contents(handle, kind);
        let last_u32 = |end: usize| Fields(&contents[end - 4..end]).number(4) as usize;
        let count = last_u32(contents.len());
        let mut end = contents.len() - 4;
        let (mut base, mut width) = (0, 0);
        if kind == DATA {
            end -= 9;
            let mut fields = Fields(&contents[end..]);
            (base, width) = (fields.number(8), fields.number(1) as usize);
        }
        let mut fingerprints = None;
        if count >> 31 == 1 {
            end -= 2;
            let count = Fields(&contents[end..]).number(2) as usize;
            end -= count;
            fingerprints = Some(count);
        }
        let restarts = count & 0x7fff_ffff;
        end -= 4 * restarts;
        let starts: Vec<usize> =
            (0..restarts).map(|i| Fields(&contents[end + 4 * i..]).number(4) as usize).collect();
        let mut fields = Fields(&contents[..end]);
        let (mut entries, mut key) = (Vec::new(), Vec::new());
        while !fields.is_empty() {
            let at = end - fields.0.len();
            let (shared, own, value) = (fields.size(), fields.size(), fields.size());
            assert!(shared == 0 || !starts.contains(&at));
            key.truncate(shared);
            key.extend_from_slice(fields.take(own));
            let trailer = (kind == DATA).then(|| base + fields.number(width));
            entries.push((key.clone(), trailer, fields.take(value).to_vec()));
        }
        assert!(fingerprints.is_none_or(|count| count == entries.len()));
        entries
    }
}

/// A version of a key.
#[derive(Clone, Debug)]
struct Version {
    sequence: u64,
    kind: u8,
    value: Vec<u8>,
}

/// A deleted range: from `start` to before `end`, or without an end.
struct RangeDelete {
    start: Vec<u8>,
    end: Option<Vec<u8>>,
    sequence: u64,
}

/// What a keyspace has, from all its tables and logs.
#[derive(Default)]
struct Found {
    name: String,
    flushed_through: u64,
    versions: BTreeMap<Vec<u8>, Vec<Version>>,
    range_deletes: Vec<RangeDelete>,
}

impl Found {
    fn add(&mut self, key: &[u8], sequence: u64, kind: u8, value: &[u8]) {
        assert!(matches!(kind, 0 | 1 | 3), "kind {kind}");
        let version = Version { sequence, kind, value: value.to_vec() };
        self.versions.entry(key.to_vec()).or_default().push(version);
    }

    /// An empty end is none.
    fn delete_range(&mut self, start: &[u8], end: &[u8], sequence: u64) {
        let end = Some(end.to_vec()).filter(|end| !end.is_empty());
        self.range_deletes.push(RangeDelete { start: start.to_vec(), end, sequence });
    }

    /// What a scan shows at `now`: the newest version of each key, if it is a put that has not
    /// expired, and no newer range delete covers the key.
    fn shown(&self, now: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut shown = BTreeMap::new();
        for (key, versions) in &self.versions {
            let Some(newest) = versions.iter().max_by_key(|version| version.sequence) else {
                continue;
            };
            let covers = |delete: &RangeDelete| {
                delete.sequence > newest.sequence
                    && delete.start <= *key
                    && delete.end.as_ref().is_none_or(|end| key < end)
            };
            let mut value = Fields(&newest.value);
            let is_put = newest.kind == 1 || newest.kind == 3 && value.number(8) > now;
            if is_put && !self.range_deletes.iter().any(covers) {
                shown.insert(key.clone(), value.0.to_vec());
            }
        }
        shown
    }
}

/// Section "Manifest", an added file.
#[derive(Default)]
struct AddedFile {
    number: u64,
    table_id: u64,
    bytes: u64,
    entries: u64,
    sequences: (u64, u64),
    global_sequence: Option<u64>,
    range_deletes: u64,
    keyspace: u64,
}

fn read_table(file: &[u8], meta: &AddedFile, found: &mut Found) {
    assert_eq!(file.len() as u64, meta.bytes);
    let (front, sum) = file[..28].split_at(24);
    assert_eq!(Fields(sum).number(4), checksum(&[front]));
    let mut header = Fields(front);
    assert_eq!((header.take(8), header.number(4)), (&b"siftdbST"[..], 1));
    assert_eq!((header.number(4), header.number(8)), (meta.keyspace, meta.table_id));
    let footer = &file[file.len() - 56..];
    let mut fields = Fields(footer);
    let metaindex = (fields.number(8) as usize, fields.number(8) as usize);
    let index = (fields.number(8) as usize, fields.number(8) as usize);
    assert_eq!(fields.number(8), meta.table_id);
    assert_eq!(fields.number(4), checksum(&[&footer[..40], &footer[44..]]));
    let version = fields.number(4);
    assert_eq!(fields.0, &b"siftdbST"[..]);
    let table = Table { file, id: meta.table_id };
    let (mut properties, mut deletes) = (BTreeMap::new(), 0);
    for (name, _, value) in table.block(metaindex, METAINDEX) {
        if name == b"siftdb.rangedel" {
            let block = table.contents(handle(Fields(&value)), RANGE_DELETES);
            deletes = read_range_deletes(&block, meta, found);
        }
        if name == b"siftdb.properties" {
            for (name, _, value) in table.block(handle(Fields(&value)), PROPERTIES) {
                properties.insert(String::from_utf8(name).unwrap(), value);
            }
        }
    }
    let number = |name: &str| Fields(&properties[name]).varint();
    assert_eq!((number("entries"), number("keyspace")), (meta.entries, meta.keyspace));
    assert_eq!((number("range_deletes"), meta.range_deletes), (deletes, deletes));
    assert_eq!(properties["keyspace_name"], found.name.as_bytes());
    let ingested = properties.get("ingested").is_some_and(|flag| flag == &[1]);
    assert_eq!(ingested, meta.global_sequence.is_some());
    let is_partitioned = match properties.get("required_features").map(Vec::as_slice) {
        Some(b"partitioned_index") => true,
        features => {
            assert_eq!(features, None);
            false
        }
    };
    assert_eq!(version, 1 + u64::from(is_partitioned));
    let mut named = table.block(index, INDEX);
    if is_partitioned {
        let top_level = std::mem::take(&mut named);
        for (_, _, value) in top_level {
            let mut value = Fields(&value);
            let handle = (value.varint() as usize, value.varint() as usize);
            let partition = table.block(handle, INDEX_PARTITION);
            assert_eq!((value.varint(), value.is_empty()), (partition.len() as u64, true));
            named.extend(partition);
        }
    }
    let mut entries = 0;
    for (_, _, value) in named {
        for (key, trailer, value) in table.block(handle(Fields(&value)), DATA) {
            let trailer = trailer.unwrap();
            let sequence = meta.global_sequence.unwrap_or(trailer >> 8);
            assert!((meta.sequences.0..=meta.sequences.1).contains(&sequence));
            found.add(&key, sequence, trailer as u8, &value);
            entries += 1;
        }
    }
    assert_eq!(entries, meta.entries);
}

/// Section "Range deletes"; returns how many there are.
fn read_range_deletes(block: &[u8], meta: &AddedFile, found: &mut Found) -> u64 {
    let (mut fields, mut count) = (Fields(block), 0);
    for _ in 0..fields.varint() {
        let (start, end) = (fields.bytes(), fields.bytes());
        let mut sequence = 0;
        for at in 0..fields.varint() {
            let number = fields.varint();
            sequence = if at == 0 { number } else { sequence - number };
            assert!((meta.sequences.0..=meta.sequences.1).contains(&sequence));
            found.delete_range(start, end, sequence);
            count += 1;
        }
    }
    assert!(fields.is_empty());
    count
}

/// Section "Records": the payloads of the records of file `number`.
fn records(file: &[u8], magic: &[u8; 8], number: u64) -> Vec<Vec<u8>> {
    const PAGE: usize = 32 << 10;
    let mut header = Fields(&file[..20]);
    assert_eq!(header.take(8), &magic[..]);
    let version = header.number(4);
    assert!(version == 1 || version == 2 && magic == b"siftdbWL", "version {version}");
    assert_eq!(header.number(4), number & 0xffff_ffff);
    assert_eq!(header.number(4), checksum(&[&file[..16]]));
    let (mut payloads, mut record, mut at) = (Vec::new(), Vec::new(), 20);
    loop {
        if PAGE - at % PAGE < 12 {
            at += PAGE - at % PAGE;
        }
        let Some(head) = file.get(at..at + 11) else { return payloads };
        let mut fields = Fields(head);
        let (sum, length, kind) = (fields.number(4), fields.number(2) as usize, fields.number(1));
        // The file may end in zeros, or in a record that a crash cut off.
        let Some(rest) = file.get(at + 4..at + 11 + length).filter(|_| kind != 0) else {
            return payloads;
        };
        if sum != checksum(&[rest]) || fields.number(4) != number & 0xffff_ffff {
            return payloads;
        }
        if kind == 1 || kind == 2 {
            record.clear();
        }
        record.extend_from_slice(&rest[7..]);
        if kind == 1 || kind == 4 {
            payloads.push(record.clone());
        }
        at += 11 + length;
    }
}

/// Section "Manifest": what all edits together say.
#[derive(Default)]
struct Manifest {
    number: u64,
    database: Vec<u8>,
    first_log: u64,
    keyspaces: BTreeMap<u64, Found>,
    tables: BTreeMap<u64, AddedFile>,
}

impl Manifest {
    fn apply(&mut self, payload: &[u8], edits: u64) {
        let (mut fields, mut ordinal) = (Fields(payload), 0);
        let mut added = Vec::new();
        while !fields.is_empty() {
            let tag = fields.number(1);
            let mut field = Fields(fields.bytes());
            match tag {
                1 => assert_eq!(field.0, b"siftdb.bytewise"),
                2 => self.database = field.0.to_vec(),
                3 => self.first_log = field.varint(),
                4..=6 | 10 | 11 | 12 | 15 | 17 => {}
                7 => {
                    let (_, _, number) = (field.varint(), field.varint(), field.varint());
                    self.tables.remove(&number).unwrap();
                }
                8 => added.push(added_file(field)),
                9 => ordinal = field.varint(),
                13 => {
                    let (id, flushed_through) = (field.varint(), field.varint());
                    let name = String::from_utf8(field.bytes().to_vec()).unwrap();
                    let found = Found { name, flushed_through, ..Found::default() };
                    self.keyspaces.insert(id, found);
                }
                14 => {
                    let id = field.varint();
                    self.keyspaces.remove(&id).unwrap();
                    self.tables.retain(|_, table| table.keyspace != id);
                }
                16 => {
                    let (id, sequence) = (field.varint(), field.varint());
                    self.keyspaces.get_mut(&id).unwrap().flushed_through = sequence;
                }
                other => assert!(other & 0x80 != 0, "field {other}"),
            }
        }
        self.tables.extend(added.into_iter().map(|table| (table.number, table)));
        assert_eq!(ordinal, edits);
    }
}

fn added_file(mut fields: Fields<'_>) -> AddedFile {
    let _level = fields.varint();
    let mut file = AddedFile { number: fields.varint(), ..AddedFile::default() };
    while !fields.is_empty() {
        let tag = fields.number(1);
        let mut field = Fields(fields.bytes());
        match tag {
            1 => file.table_id = field.number(8),
            2 => file.bytes = field.varint(),
            3 | 4 | 11 => {}
            10 => file.range_deletes = field.varint(),
            5 => file.entries = field.varint(),
            6 => file.sequences.0 = field.varint(),
            7 => file.sequences.1 = field.varint(),
            8 => file.global_sequence = Some(field.varint()),
            9 => file.keyspace = field.varint(),
            other => assert!(other & 0x80 != 0, "field {other} of a file"),
        }
    }
    file
}

/// Section "Write-ahead log".
fn read_log(file: &[u8], number: u64, manifest: &mut Manifest) {
    let payloads = records(file, b"siftdbWL", number);
    for (at, payload) in payloads.iter().enumerate() {
        let (kind, front) = payload.split_last().unwrap();
        let mut fields = Fields(front);
        let _synced_through = fields.varint();
        // Of the version that has loads, this record is always there.
        assert_eq!(
            *kind,
            if at == 0 {
                1
            } else if at == 1 && file[8] == 2 {
                3
            } else {
                2
            }
        );
        if at == 0 {
            let [_previous, _last, _first, of_manifest, _bytes, epoch] =
                std::array::from_fn(|_| fields.varint());
            if of_manifest > manifest.number {
                // Of a session that never began.
                assert_eq!(payloads.len(), 1);
                return;
            }
            let mut database = Fields(&manifest.database);
            assert_eq!(fields.0, database.take(16));
            assert_eq!(epoch, database.varint());
            continue;
        }
        if *kind == 3 {
            while !fields.is_empty() {
                let (_table_id, sequence) = (fields.number(8), fields.varint());
                assert!(sequence > 0);
            }
            continue;
        }
        let (sequence, count) = (fields.number(8), fields.number(4));
        for sequence in sequence..sequence + count {
            let kind = fields.number(1) as u8;
            let keyspace = if kind & 0x40 != 0 { fields.varint() } else { 0 };
            let kind = kind & !0x40;
            let key = fields.bytes();
            let value = if kind == 0 { &[] } else { fields.bytes() };
            // Entries of dropped keyspaces, and entries that are in tables, do not count.
            let found = manifest.keyspaces.get_mut(&keyspace);
            let Some(found) = found.filter(|found| sequence > found.flushed_through) else {
                continue;
            };
            match kind {
                2 => found.delete_range(key, value, sequence),
                _ => found.add(key, sequence, kind, value),
            }
        }
        assert!(fields.is_empty());
    }
}

/// The number in a name like `000012.wal`.
fn number_of(name: &str) -> u64 {
    name.bytes().filter(u8::is_ascii_digit).fold(0, |n, digit| 10 * n + u64::from(digit - b'0'))
}

/// What a scan of each keyspace shows at `now`, in milliseconds since 1970.
pub fn read_database(files: &Files, now: u64) -> Contents {
    let current = String::from_utf8(files["CURRENT"].clone()).unwrap();
    let (front, sum) = current.trim_end().rsplit_once(' ').unwrap();
    let front = format!("{front} ");
    assert_eq!(u64::from_str_radix(sum, 16).unwrap(), checksum(&[front.as_bytes()]));
    let name = front.strip_prefix("siftdb 1 ").unwrap().trim_end();
    let mut manifest = Manifest { number: number_of(name), ..Manifest::default() };
    let edits = records(&files[name], b"siftdbMF", number_of(name));
    for (payload, ordinal) in edits.iter().zip(1..) {
        manifest.apply(payload, ordinal);
    }
    for (number, meta) in std::mem::take(&mut manifest.tables) {
        let found = manifest.keyspaces.get_mut(&meta.keyspace).unwrap();
        read_table(&files[&format!("{number:06}.sst")], &meta, found);
    }
    let logs = files.keys().filter(|name| name.ends_with(".wal"));
    let logs: BTreeSet<u64> = logs.map(|name| number_of(name)).collect();
    let first_log = manifest.first_log;
    for number in logs.into_iter().filter(|number| *number >= first_log) {
        read_log(&files[&format!("{number:06}.wal")], number, &mut manifest);
    }
    manifest.keyspaces.values().map(|found| (found.name.clone(), found.shown(now))).collect()
}
