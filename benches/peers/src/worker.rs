//! A process that drives one engine in one layout: reads the name of a phase, answers with samples.
//!
//! One line in, one line out: `PHASE ROUND`, then a [`Reply`] in JSON. The end of the input is the
//! end of the process. Nothing else is written to the standard output.

use crate::args::{Args, find_engine};
use crate::databases::Databases;
use crate::engine::{Layout, Result};
use crate::memory_group::MemoryGroup;
use crate::phases::{self, Phase};
use crate::sample::Sample;
use crate::workload::Workload;
use clap::ValueEnum;
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;

/// The answer to one round of a phase: what was measured, or why nothing was and the run ends.
pub type Reply = std::result::Result<Vec<Sample>, String>;

/// Answers until the input ends. With a memory group it enters that first.
pub fn serve(engine: &str, layout: &str, data: &Path, args: &Args) -> Result<()> {
    let group = args.memory_group.as_deref().map(MemoryGroup::named);
    group.as_ref().map_or(Ok(()), MemoryGroup::join)?;
    let (engine, layout) = (find_engine(engine)?, Layout::from_str(layout, false)?);
    let workload = Workload::new(&args.workload);
    let mut databases = Databases::new(engine, layout, data.to_owned(), &workload);
    databases.memory = group.zip(args.memory);
    for line in stdin().lock().lines() {
        let reply: Reply = answer(&line?, &mut databases).map_err(|error| error.to_string());
        let mut output = stdout().lock();
        serde_json::to_writer(&mut output, &reply)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    databases.close()
}

fn answer(line: &str, databases: &mut Databases<'_>) -> Result<Vec<Sample>> {
    let (phase, round) = line.split_once(' ').ok_or("a line is `PHASE ROUND`")?;
    phases::run(Phase::from_str(phase, false)?, round.parse()?, databases)
}
