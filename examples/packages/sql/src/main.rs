//! `siftdb-sql DIR`: a shell for SQL.

use gluesql_core::prelude::Glue;
use gluesql_core::store::Transaction;
use siftdb_sql::statements::Statements;
use siftdb_sql::{Connection, Database, text};
use std::io::{self, BufRead, IsTerminal, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
siftdb-sql DIR [STATEMENT]...    run SQL in the database in DIR; create it if there is none

Without STATEMENT it reads statements from the standard input; each ends with a `;`.
After the first that fails it stops with exit code 1; at a terminal it goes on.
A transaction that is open at the end is rolled back.";

/// GlueSQL recurses once for each operator of an expression, with some 16 KiB a time in a debug
/// build. Only what is used of it takes memory.
const STACK_BYTES: usize = 1 << 30;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Runs what `statement` has, and prints the answers.
fn execute(sql: &mut Glue<Connection>, statement: &str) -> Result<(), Error> {
    // Some functions of GlueSQL panic, such as SUBSTR in the middle of a character.
    let answers = match catch_unwind(AssertUnwindSafe(|| sql.execute(statement))) {
        Ok(answers) => answers.map_err(|error| format!("{error}\n  in: {statement}"))?,
        Err(_) => {
            if sql.storage.is_in_transaction() {
                sql.storage.rollback()?;
            }
            let why = "GlueSQL cannot run this. The transaction was rolled back";
            return Err(format!("{why}\n  in: {statement}").into());
        }
    };
    let mut out = io::stdout().lock();
    answers.iter().try_for_each(|answer| write!(out, "{}", text::of(answer)))?;
    Ok(out.flush()?)
}

/// Runs the statements of the standard input, each as soon as it is complete.
fn execute_input(sql: &mut Glue<Connection>) -> Result<(), Error> {
    let (mut input, is_terminal) = (io::stdin().lock(), io::stdin().is_terminal());
    let (mut statements, mut line) = (Statements::default(), String::new());
    loop {
        if is_terminal {
            let open = if sql.storage.is_in_transaction() { " (in a transaction)" } else { "" };
            write!(io::stdout(), "sql{open}> ")?;
            io::stdout().flush()?;
        }
        line.clear();
        let has_ended = input.read_line(&mut line)? == 0;
        statements.add(&line);
        while let Some(statement) = statements.next(has_ended) {
            match execute(sql, &statement) {
                Err(error) if is_terminal => eprintln!("{error}"),
                result => result?,
            }
        }
        if has_ended {
            return Ok(());
        }
    }
}

fn run(arguments: &[String]) -> Result<(), Error> {
    let (directory, statements) = match arguments {
        [help] if help == "--help" || help == "-h" => {
            return Ok(writeln!(io::stdout(), "{USAGE}")?);
        }
        [directory, statements @ ..] if !directory.starts_with('-') => (directory, statements),
        _ => return Err(USAGE.into()),
    };
    let database = Database::open(Path::new(directory), siftdb::Options::new())?;
    let mut sql = Glue::new(database.connect());
    match statements {
        [] => execute_input(&mut sql)?,
        _ => statements.iter().try_for_each(|statement| execute(&mut sql, statement))?,
    }
    if sql.storage.is_in_transaction() {
        return Err("COMMIT is missing: the open transaction was rolled back".into());
    }
    Ok(database.db().close()?)
}

fn main() -> ExitCode {
    // The statement that panicked is reported instead.
    set_hook(Box::new(|_| {}));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let shell = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || run(&arguments));
    let ended = shell.map_err(Error::from).and_then(|shell| match shell.join() {
        Ok(ended) => ended,
        Err(_) => Err("the shell panicked".into()),
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a standard error there is nowhere to say it.
            let _ = writeln!(io::stderr(), "siftdb-sql: {error}");
            ExitCode::FAILURE
        }
    }
}
