//! `siftdb help [COMMAND|TOPIC]`: the help of commands, and topics that concern several of them.
//!
//! `siftdb man` puts the same topics into the page of the whole command. Tests run a command for
//! each exit code, and compare each list of names here with what the command knows.

use crate::described::{Described, Field, help, lines, result, rows};
use crate::failure::{EndingError, Failure, Outcome};
use crate::fold::{COLUMNS, HELP_COLUMNS_MAX, columns, reflowed};
use crate::output::{Output, Shown};
use clap::{Args, Command};
use std::io::Write;

/// A text on something that concerns several commands.
pub struct Topic {
    pub name: String,
    pub about: &'static str,
    pub text: String,
}

/// All topics.
pub fn topics() -> Vec<Topic> {
    let topic = |Field { names, about, inner }: &Field| {
        let [about, _, text @ ..] = &about[..] else { return None };
        let name = names.concat().replace('_', "-");
        let text = reflowed(&(lines(text) + &rows(inner, 2)), COLUMNS);
        Some(Topic { name, about: about.trim(), text })
    };
    Topics::fields().iter().filter_map(topic).collect()
}

result! {
    /// The texts of all topics: a line about each, an empty one, and the text.
    value Topics {
        /// what a filter is, and which to choose
        ///
        /// Every table has a filter. Of a key it says "certainly not here" or "maybe".
        /// A lookup asks the filter first, and reads a table only after a "maybe". A
        /// "maybe" for a key that is not there is a false positive: it costs a read, and
        /// never changes an answer.
        ///
        /// With 10 bits a key, about 1 % of absent keys pass; each further 5 bits pass a
        /// tenth of that. Encodings, as `siftdb settings` spells them:
        ///   bloom:BITS          RocksDB's Bloom filter, the default (fast-local-bloom)
        ///   ribbon:BITS         the same rate in 7/10 of the space, for more work
        ///   leveldb-bloom:BITS  LevelDB's
        ///   legacy-bloom:BITS   RocksDB's older one
        ///   bloom-then-ribbon:BITS:LEVEL   ribbon from this level on, bloom above
        ///   monkey:SIZE         a budget of memory, divided over the levels
        ///   none                no filter
        ///
        /// Commands:
        ///   siftdb filter sim --keys 1e7 --bits 6,10    rates and bytes; needs no database
        ///   siftdb filter stats DIR                     what the filters of a database do
        ///   siftdb filter stats DIR --probe FILE        the same for your own lookups
        ///   siftdb filter advise DIR --budget 64MB      bits by level
        ///   siftdb settings DIR --set filter=bloom:12   for tables written from now on
        ///   siftdb filter rebuild DIR --bits 12         and for all tables, now
        filters;
        /// where the bits of a filter are
        ///
        /// The layout says where the bits of a table's filter are.
        ///   full          one filter for a table: an absent key costs one probe, and
        ///                 nothing else of the table; the whole filter must be in memory
        ///   partitioned   one filter for each run of keys, and a small index over them:
        ///                 a lookup needs one partition of about 4 KiB
        ///   block-based   one filter for each 2 KiB of the file, as in LevelDB: a lookup
        ///                 searches the table's index first; for comparison
        ///
        /// By default levels 0 and 1 have full filters, and deeper levels partitioned
        /// ones. Full filters win where all filters fit into memory, partitioned ones
        /// where they do not. Each table names its own filter, so the setting may change
        /// at any time.
        ///
        /// Commands:
        ///   siftdb demo                                      the layouts side by side
        ///   siftdb filter rebuild DIR --layout partitioned   another one for all tables
        layouts;
        /// which keyspace a command concerns
        ///
        /// A database has keyspaces, each with keys, tables and settings of its own.
        /// --keyspace NAME names one. Without it:
        ///   `default`   get, put, delete, scan, count, load, explain, compact, report,
        ///               filter advise, filter rebuild, settings with --set
        ///   all         stats, settings, flush, filter stats, verify, repair, export,
        ///               checkpoint, keyspace list
        ///
        /// put and load create a missing keyspace with --create, import always.
        /// `siftdb keyspace list|create|drop DIR` shows and changes them.
        keyspaces;
        /// what survives a crash
        ///
        /// What survives:
        ///   a command ended with 0   what it wrote survives a loss of power
        ///   a command was killed     of load, all batches up to some line; of put and
        ///                            delete all or nothing; the database is sound; of
        ///                            import into a new one nothing but a directory
        ///                            .siftdb-import-..., which the next import there
        ///                            removes; of checkpoint and restore a directory that
        ///                            says so: run the command again, or remove it
        ///   a program dies           every write that it acknowledged is there
        ///   power is lost            every write up to the last sync is there; of later
        ///                            ones a prefix, and of a batch all or nothing
        ///   a byte is damaged        reads that need it fail with file and offset, exit
        ///                            code 3; a damaged filter costs time only
        ///
        /// `siftdb verify DIR` reads and checks everything. `siftdb checkpoint DIR TO`
        /// makes a copy that shares the files of tables: copy it to another disk for a
        /// backup against the loss of this one. `siftdb restore TO DIR` makes a database
        /// of it. `siftdb repair DIR` makes a damaged database sound and says what is
        /// lost.
        durability;
        /// commands while a program writes
        ///
        /// Commands that only read show one moment of a database that a program has open
        /// to write, and say so on standard error. What that program has not synced yet
        /// is part of it. `stats --watch` shows a new moment each time. Commands that
        /// write need the database for themselves: while a program has it open to write,
        /// they end with exit code 4.
        readers;
        /// files that commands read and write
        ///
        /// Entries as text:
        ///   lines     KEY TAB VALUE with escapes, see `siftdb help bytes`: scan, get of
        ///             several keys, load, export and import as tsv
        ///   jsonl     an object a line, with keyspaces, settings, expiry: export, import
        ///   mdb, bdb  what LMDB's mdb_dump and Berkeley DB's db_dump print: export, import
        ///   ldb       what RocksDB's `ldb dump --hex` prints: import
        ///   leveldb   a directory of LevelDB, which is not changed: import, filter stats
        ///   rocksdb   a directory of RocksDB, which is not changed: import, filter stats
        ///   tables    a table of LevelDB (*.ldb) or RocksDB (*.sst), as its last bytes
        ///             say: sst layout, sst dump, sst verify, filter stats
        ///   keys      one a line, without escapes: get --input, demo --input, --probe,
        ///             --key-file
        ///
        /// Files of a database, with checksums, and a version that others refuse by name:
        ///   CURRENT      names the manifest
        ///   MANIFEST-*   which tables and logs there are, keyspaces, settings
        ///   *.wal        writes that are in no table yet
        ///   *.sst        tables: sorted entries, their filter and their index
        /// `siftdb sst dump FILE` prints each of them as text; docs/format.md describes
        /// the bytes.
        formats;
        /// how keys and values are spelled
        ///
        /// Keys and values are bytes. As arguments they have no escapes; --escaped reads
        /// \t, \n, \\ and \xNN in them. A key that begins with `-` comes after `--`:
        ///   siftdb get DIR -- -key
        ///
        /// On a terminal `get` of one key prints a line with such escapes; into a pipe or
        /// file it prints the bytes and nothing else. `scan`, and `get` of several keys,
        /// print lines of KEY TAB VALUE with escapes, and `load` reads them, so every byte
        /// survives; --raw on scan and load means no escapes.
        ///
        /// Files of keys (--input of get and demo, --probe, --key-file) have no escapes
        /// and one key a line; --escaped applies to that of `get`. The file of
        /// `put --input` is the value, byte by byte.
        bytes;
        /// objects and errors with --json
        ///
        /// With --json the result is one object on standard output, or one a line for
        /// `scan`, `get` of several keys, `export`, `filter stats`, `sst dump` and
        /// `stats --watch`. `format` is the version of its shape; within a version fields
        /// are only added. The fields are at the end of `siftdb COMMAND --help`. A field
        /// NAME of bytes is a string if they are UTF-8; else it is NAME_base64. `what` and
        /// `advice` are text for people, and so are `title`, `sentence`, `command`,
        /// `finding`, `text` and the cells of `rows` in figures.
        ///
        /// An error is an object on standard error, one a line: format, and error with
        json: EndingError;
        /// what an exit code says
        ///
        /// Exit codes:
        ///   0  done; also if the reader of the output has gone, as in `scan DIR | head`
        ///   1  `get`: a key is not there
        ///   2  usage: a wrong argument, or an unusable line of input
        ///   3  damaged files, or files of an unknown format
        ///   4  anything else: I/O, no such database or keyspace, a locked one, half of a
        ///      checkpoint or import that was interrupted, counts that disagree
        ///   5  `repair`, `import --salvage`, `load` with bad lines: done, but entries are
        ///      lost or left out; `repair` also if they may be
        /// A shell shows a command that a signal ended as 128 and its number:
        ///   130  Ctrl-C (SIGINT); also 129 (SIGHUP) and 143 (SIGTERM). `import`, `demo`
        ///        and `bench` remove what they built, and -o leaves the file as it was;
        ///        `siftdb help durability` says what survives of other commands
        exit_codes;
        /// colors, widths, progress
        ///
        /// Results go to standard output, everything else to standard error. Notes and
        /// errors are one line each.
        ///   Colors     only in help and usage errors, and only on a terminal. NO_COLOR=1
        ///              or CLICOLOR=0 turn them off, CLICOLOR_FORCE=1 turns them on
        ///              everywhere.
        ///   Widths     help is as wide as COLUMNS says, else as the terminal, else 80
        ///              columns, and at most 100. On a terminal, lines of results are
        ///              folded to that width; into a pipe or file they are whole.
        ///              Entries are never folded.
        ///   Progress   bars are drawn on standard error if that is a terminal.
        terminal;
    }

    struct HelpText {
        /// the topic, or the command
        topic: String;
        /// the help
        text: String;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<HelpText>())]
pub struct Help {
    /// A command, or a topic: `siftdb help topics` lists these
    #[arg(value_name = "COMMAND|TOPIC")]
    words: Vec<String>,
}

impl Help {
    /// Prints help; `root` is the whole command.
    pub fn run(self, output: Output, root: &Command) -> Outcome<Shown> {
        let name = self.words.join("-").to_lowercase();
        if name == "topics" {
            return show(output, "topics", &list());
        }
        if let Some(topic) = topics().iter().find(|topic| topic.name == name) {
            return show(output, &name, topic.text.trim_end());
        }
        let is_command = |root: &Command| {
            let found = self.words.iter().try_fold(root, |of, word| of.find_subcommand(word));
            found.is_some()
        };
        if !is_command(root) {
            let what = format!("no command or topic {:?}", self.words.join(" "));
            return Err(Failure::usage(format!("{what}; `siftdb help topics` lists topics")));
        }
        let words = ["siftdb"].into_iter().chain(self.words.iter().map(String::as_str));
        match root.clone().try_get_matches_from(words.chain(["--help"])) {
            Err(help) if output.is_json() => show(output, &name, help.to_string().trim_end()),
            Err(help) => output.show_help(&help),
            Ok(_) => Err(Failure::fault("no help was made")),
        }
    }
}

/// A line for each topic.
fn list() -> String {
    let line = |topic: &Topic| format!("  {:<12} {}", topic.name, topic.about);
    let lines: Vec<String> = topics().iter().map(line).collect();
    format!("`siftdb help TOPIC` prints one of these:\n{}", lines.join("\n"))
}

fn show(output: Output, topic: &str, text: &str) -> Outcome<Shown> {
    let help = HelpText { topic: topic.into(), text: text.into() };
    let width = columns().min(HELP_COLUMNS_MAX);
    output.show_whole(&help, |out| write!(out, "{}", reflowed(&format!("{text}\n"), width)))
}
