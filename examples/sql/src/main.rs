//! `siftdb-sql DIR`: a shell for SQL.

use gluesql_core::prelude::Glue;
use siftdb_sql::statements::Statements;
use siftdb_sql::{Connection, Database, text};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
siftdb-sql DIR [STATEMENT]...    run SQL in the database in DIR, which is created if it is not there

Without statements it reads them from the standard input; each ends with a `;`. It stops at the first
that fails, with exit code 1, but not at a terminal. A transaction that is open at the end is
rolled back.";

type Error = Box<dyn std::error::Error>;

/// Runs what `text` has, and prints the answers.
fn execute(sql: &mut Glue<Connection>, text: &str) -> Result<(), Error> {
    let answers = sql.execute(text).map_err(|error| format!("{error}\n  in: {text}"))?;
    let mut out = io::stdout().lock();
    answers.iter().try_for_each(|answer| write!(out, "{}", text::of(answer)))?;
    Ok(out.flush()?)
}

fn run(directory: &str, arguments: &[String]) -> Result<(), Error> {
    let database = Database::open(Path::new(directory), siftdb::Options::new())?;
    let mut sql = Glue::new(database.connect());
    for argument in arguments {
        execute(&mut sql, argument)?;
    }
    if arguments.is_empty() {
        read_and_execute(&mut sql)?;
    }
    match sql.storage.is_in_transaction() {
        true => Err("the open transaction was rolled back: COMMIT is missing".into()),
        false => Ok(database.db().close()?),
    }
}

/// Runs the statements of the standard input, each as soon as it is complete.
fn read_and_execute(sql: &mut Glue<Connection>) -> Result<(), Error> {
    let (mut input, is_terminal) = (io::stdin().lock(), io::stdin().is_terminal());
    let (mut statements, mut line) = (Statements::default(), String::new());
    loop {
        if is_terminal {
            print!(
                "{}",
                if sql.storage.is_in_transaction() { "sql (in transaction)> " } else { "sql> " }
            );
            io::stdout().flush()?;
        }
        line.clear();
        let ended = input.read_line(&mut line)? == 0;
        statements.add(&line);
        let next = |statements: &mut Statements| match statements.next_complete() {
            None if ended => statements.rest(),
            complete => complete,
        };
        while let Some(statement) = next(&mut statements) {
            match execute(sql, &statement) {
                Err(error) if is_terminal => eprintln!("{error}"),
                result => result?,
            }
        }
        if ended {
            return Ok(());
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = match arguments.split_first() {
        Some((help, _)) if help == "--help" || help == "-h" => {
            writeln!(io::stdout(), "{USAGE}").map_err(Into::into)
        }
        Some((directory, statements)) if !directory.starts_with('-') => run(directory, statements),
        _ => Err(USAGE.into()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("siftdb-sql: {error}");
            ExitCode::FAILURE
        }
    }
}
