//! Checks whether long histories of transactions and single operations are strictly serializable.
//!
//! The search of `linearizability` tries orders, which takes too long for thousands of operations.
//! This check derives which operation must come before which, and looks for a cycle (Adya, "Weak
//! consistency", 1999). An operation reads and writes at one moment between its begin and its end,
//! and each put has a number of its own. Why *a* comes before *b*:
//!
//! - *time*: `a` ended before `b` began.
//! - *write-read*: `b` read what `a` wrote.
//! - *write-write*: `a` wrote a key whose value some operation `r` read from `b`, and `a` comes
//!   before `r`. So `b` came later, or `r` had read `a`.
//! - *read-write*: `a` read a key from some `w`, and `b` wrote that key and comes after `w`.
//!
//! The last two use what is known so far, so they are repeated until nothing is added. A scan reads
//! all keys that it crosses, also those that it finds absent: so these are the dependencies of
//! predicates too. Deletions have no number. An absent key may have been read from any deletion
//! that is not ruled out by what is known; a put that comes after all of these comes after the
//! read.
//!
//! Everything that is derived holds in every order that explains the history, so a history with a
//! cycle has none. The converse is not true: what could still be in either order is not tried.

use super::linearizability::{Action, Held, Operation, State};
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};

/// An operation with what it found and wrote, each key once.
struct Node<'a> {
    operation: &'a Operation,
    found: BTreeMap<usize, Held>,
    written: BTreeMap<usize, Held>,
    /// Its place among the operations of its thread.
    place: usize,
}

/// A write of a key: by an operation, or what was there before all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writer {
    Before,
    Node(usize),
}

/// Why one operation comes before another one.
#[derive(Clone, Copy, Debug)]
enum Why {
    Time,
    WriteRead(usize),
    WriteWrite(usize),
    ReadWrite(usize),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Time => write!(f, "it began after the end of"),
            Why::WriteRead(key) => write!(f, "it read key {key} from"),
            Why::WriteWrite(key) => write!(f, "it wrote key {key} after"),
            Why::ReadWrite(key) => write!(f, "it overwrote key {key}, which was read by"),
        }
    }
}

struct Graph<'a> {
    before: State,
    nodes: Vec<Node<'a>>,
    /// The nodes of each thread, in order.
    threads: Vec<Vec<usize>>,
    /// The nodes that write a key, by key and thread, in order.
    writers: HashMap<usize, Vec<Vec<usize>>>,
    /// The operation that put each number under its key.
    puts: HashMap<(usize, Held), usize>,
    /// What comes directly before each node.
    edges: Vec<BTreeMap<usize, Why>>,
    /// How many nodes of each thread come before each node.
    known: Vec<Vec<usize>>,
}

/// Why no order explains the operations; `None` if no contradiction was found. No two operations of
/// one thread overlap.
pub fn contradiction(before: State, operations: &[Operation]) -> Option<String> {
    let mut graph = match Graph::new(before, operations) {
        Ok(graph) => graph,
        Err(why) => return Some(why),
    };
    loop {
        if let Err(why) = graph.sort() {
            return Some(why);
        }
        match graph.derive() {
            Err(why) => return Some(why),
            Ok(false) => return None,
            Ok(true) => {}
        }
    }
}

impl<'a> Graph<'a> {
    fn new(before: State, operations: &'a [Operation]) -> Result<Self, String> {
        let thread_count = operations.iter().map(|one| one.thread + 1).max().unwrap_or(0);
        let mut sorted: Vec<&Operation> = operations.iter().collect();
        sorted.sort_by_key(|one| one.begun);
        let mut threads = vec![Vec::new(); thread_count];
        let mut writers: HashMap<usize, Vec<Vec<usize>>> = HashMap::new();
        let mut nodes = Vec::new();
        for (number, operation) in sorted.into_iter().enumerate() {
            let (found, written): (&[_], &[_]) = match &operation.action {
                Action::Read(found) => (found, &[]),
                Action::Write(written) => (&[], written),
                Action::Change { found, written } => (found, written),
            };
            let mut keys = BTreeMap::new();
            for (key, held) in found {
                if keys.insert(*key, *held).is_some_and(|other| other != *held) {
                    return Err(format!("two values of {key} at one moment:\n{operation:?}"));
                }
            }
            let written: BTreeMap<usize, Held> = written.iter().copied().collect();
            for key in written.keys() {
                let of_key = writers.entry(*key).or_insert_with(|| vec![Vec::new(); thread_count]);
                of_key[operation.thread].push(number);
            }
            let place = threads[operation.thread].len();
            threads[operation.thread].push(number);
            nodes.push(Node { operation, found: keys, written, place });
        }
        let (edges, known) = (vec![BTreeMap::new(); nodes.len()], Vec::new());
        let puts = HashMap::new();
        let mut graph = Graph { before, nodes, threads, writers, puts, edges, known };
        graph.add_time();
        graph.add_reads()?;
        Ok(graph)
    }

    /// Before each node the last one of each thread that ended before it began.
    fn add_time(&mut self) {
        for thread in &self.threads {
            let mut ended = 0;
            for number in 0..self.nodes.len() {
                let begun = self.nodes[number].operation.begun;
                while ended < thread.len() && self.nodes[thread[ended]].operation.ended < begun {
                    ended += 1;
                }
                if let Some(last) = ended.checked_sub(1) {
                    self.edges[number].insert(thread[last], Why::Time);
                }
            }
        }
    }

    /// The writer of each number that was read.
    fn add_reads(&mut self) -> Result<(), String> {
        for (number, node) in self.nodes.iter().enumerate() {
            for (key, held) in node.written.iter().filter(|(_, held)| held.is_some()) {
                if self.puts.insert((*key, *held), number).is_some() {
                    return Err(format!("{held:?} was written to {key} twice"));
                }
            }
        }
        for number in 0..self.nodes.len() {
            for (key, held) in &self.nodes[number].found {
                match self.puts.get(&(*key, *held)) {
                    Some(writer) if held.is_some() => {
                        self.edges[number].insert(*writer, Why::WriteRead(*key));
                    }
                    None if held.is_some() && self.before[*key] != *held => {
                        let operation = &self.nodes[number].operation;
                        return Err(format!("nobody wrote {held:?} to {key}:\n{operation:?}"));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Computes `known` in an order in which each node follows what comes before it.
    fn sort(&mut self) -> Result<(), String> {
        let mut after = vec![Vec::new(); self.nodes.len()];
        let mut missing: Vec<usize> = self.edges.iter().map(BTreeMap::len).collect();
        for (number, edges) in self.edges.iter().enumerate() {
            edges.keys().for_each(|earlier| after[*earlier].push(number));
        }
        self.known = vec![vec![0; self.threads.len()]; self.nodes.len()];
        let mut ready: Vec<usize> = (0..self.nodes.len()).filter(|at| missing[*at] == 0).collect();
        let mut sorted = 0;
        while let Some(number) = ready.pop() {
            sorted += 1;
            let mut known = std::mem::take(&mut self.known[number]);
            for earlier in self.edges[number].keys() {
                let of_earlier = known.iter_mut().zip(&self.known[*earlier]);
                of_earlier.for_each(|(own, other)| *own = (*own).max(*other));
                let (thread, place) = self.position(*earlier);
                known[thread] = known[thread].max(place + 1);
            }
            self.known[number] = known;
            for later in std::mem::take(&mut after[number]) {
                missing[later] -= 1;
                if missing[later] == 0 {
                    ready.push(later);
                }
            }
        }
        match sorted == self.nodes.len() {
            true => Ok(()),
            false => Err(self.cycle(&missing)),
        }
    }

    fn position(&self, number: usize) -> (usize, usize) {
        (self.nodes[number].operation.thread, self.nodes[number].place)
    }

    /// True if `earlier` is known to come before `later`.
    fn precedes(&self, earlier: Writer, later: usize) -> bool {
        let Writer::Node(earlier) = earlier else { return true };
        let (thread, place) = self.position(earlier);
        self.known[later][thread] > place
    }

    /// Adds what follows from what is known; true if that was anything.
    fn derive(&mut self) -> Result<bool, String> {
        let mut found = Vec::new();
        let writer = |put: Option<usize>| put.map_or(Writer::Before, Writer::Node);
        for reader in 0..self.nodes.len() {
            for (key, held) in &self.nodes[reader].found {
                let sources = match held {
                    Some(_) => vec![writer(self.puts.get(&(*key, *held)).copied())],
                    None => self.candidates(reader, *key),
                };
                match sources[..] {
                    [] => {
                        let operation = self.nodes[reader].operation;
                        let why = format!("no deletion explains that {key} is absent");
                        return Err(format!("{why}:\n{operation:?}"));
                    }
                    [source] => self.derive_of_read(reader, *key, source, &mut found),
                    _ => self.derive_of_absent(reader, *key, &sources, &mut found),
                }
            }
        }
        let mut added = false;
        for (earlier, later, why) in found {
            if earlier == later || !self.precedes(Writer::Node(earlier), later) {
                added |= self.edges[later].insert(earlier, why).is_none();
            }
        }
        Ok(added)
    }

    /// For each thread that writes `key`: its writers but `reader`, how many of them are known to
    /// precede it, and how many are not known to follow it.
    fn around(&self, reader: usize, key: usize) -> impl Iterator<Item = (&[usize], usize, usize)> {
        self.writers.get(&key).into_iter().flatten().map(move |writers| {
            let precedes = |writer: &usize| self.precedes(Writer::Node(*writer), reader);
            let earlier = writers.partition_point(precedes);
            let follows = |writer: &usize| self.precedes(Writer::Node(reader), *writer);
            let open = writers.partition_point(|writer| !follows(writer));
            (&writers[..], earlier, open)
        })
    }

    /// The first writer of `key` in that thread that is known to come after `writer`.
    fn first_after(&self, writer: Writer, writers: &[usize]) -> Option<usize> {
        writers.get(writers.partition_point(|one| !self.precedes(writer, *one))).copied()
    }

    /// What `reader` may have read `key`, which it found absent, from.
    fn candidates(&self, reader: usize, key: usize) -> Vec<Writer> {
        let mut candidates = Vec::new();
        if self.before[key].is_none() {
            candidates.push(Writer::Before);
        }
        for (writers, earlier, open) in self.around(reader, key) {
            for writer in &writers[earlier.saturating_sub(1)..open.max(earlier)] {
                if *writer != reader && self.nodes[*writer].written[&key].is_none() {
                    candidates.push(Writer::Node(*writer));
                }
            }
        }
        candidates.retain(|candidate| {
            let is_between = |writers: &Vec<usize>| {
                let next = self.first_after(*candidate, writers);
                next.is_some_and(|next| self.precedes(Writer::Node(next), reader))
            };
            !self.writers.get(&key).into_iter().flatten().any(is_between)
        });
        candidates
    }

    /// The reader has read `key` from `source`.
    fn derive_of_read(
        &self,
        reader: usize,
        key: usize,
        source: Writer,
        found: &mut Vec<(usize, usize, Why)>,
    ) {
        if let Writer::Node(source) = source {
            found.push((source, reader, Why::WriteRead(key)));
        }
        for (writers, earlier, _) in self.around(reader, key) {
            // Of a thread the last one before: the others come before that.
            if let Some(last) = earlier.checked_sub(1).map(|last| writers[last])
                && Writer::Node(last) != source
            {
                match source {
                    Writer::Node(source) => found.push((last, source, Why::WriteWrite(key))),
                    // A contradiction: what was there before comes before all writes.
                    Writer::Before => found.push((reader, last, Why::ReadWrite(key))),
                }
            }
            let mut next = self.first_after(source, writers);
            if next == Some(reader) {
                next = writers.get(writers.partition_point(|one| *one <= reader)).copied();
            }
            if let Some(next) = next {
                found.push((reader, next, Why::ReadWrite(key)));
            }
        }
    }

    /// The reader has found `key` absent, after one of the candidates.
    fn derive_of_absent(
        &self,
        reader: usize,
        key: usize,
        candidates: &[Writer],
        found: &mut Vec<(usize, usize, Why)>,
    ) {
        for (writers, earlier, open) in self.around(reader, key) {
            let after_all = |writer: &&usize| {
                self.nodes[**writer].written[&key].is_some()
                    && **writer != reader
                    && candidates.iter().all(|candidate| self.precedes(*candidate, **writer))
            };
            let range = earlier..open.max(earlier);
            if let Some(first) = writers[range].iter().find(after_all) {
                found.push((reader, *first, Why::ReadWrite(key)));
            }
        }
    }

    /// A cycle among the nodes that miss something before them, as text.
    fn cycle(&self, missing: &[usize]) -> String {
        let earlier_of = |number: usize| {
            let edges = self.edges[number].iter();
            edges.map(|(earlier, why)| (*earlier, *why)).find(|(earlier, _)| missing[*earlier] > 0)
        };
        let first = (0..missing.len()).find(|number| missing[*number] > 0).unwrap_or(0);
        let mut path: Vec<(usize, Option<Why>)> = vec![(first, None)];
        while let Some((earlier, why)) = earlier_of(path[path.len() - 1].0) {
            if let Some(begin) = path.iter().position(|(number, _)| *number == earlier) {
                path.drain(..begin);
                path[0].1 = None;
                path.push((earlier, Some(why)));
                break;
            }
            path.push((earlier, Some(why)));
        }
        let mut text = String::from("a cycle:\n");
        for (number, why) in path {
            if let Some(why) = why {
                writeln!(text, "    {why}").unwrap();
            }
            writeln!(text, "{:?}", self.nodes[number].operation).unwrap();
        }
        text
    }
}
