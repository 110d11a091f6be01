//! A process that drives one engine in one layout: reads the name of a phase, answers with samples.
//!
//! One line in, one line out: `PHASE ROUND`, then a [`Reply`] in JSON. The end of the input is the
//! end of the process. Nothing else is written to the standard output.

use crate::args::{find_engine, find_layout};
use crate::databases::Databases;
use crate::engine::Result;
use crate::phases::{self, Phase};
use crate::sample::Sample;
use crate::workload::{Workload, WorkloadArgs};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write, stdin, stdout};
use std::path::Path;

/// The answer to one round of a phase.
#[derive(Debug, Deserialize, Serialize)]
pub enum Reply {
    /// What was measured.
    Samples(Vec<Sample>),
    /// Why nothing was: the run ends.
    Failed(String),
}

/// Answers until the input ends.
pub fn serve(engine: &str, layout: &str, data: &Path, workload: &WorkloadArgs) -> Result<()> {
    let (engine, layout) = (find_engine(engine)?, find_layout(layout)?);
    let mut databases = Databases::new(engine, layout, data.to_owned());
    let workload = Workload::new(workload);
    for line in stdin().lock().lines() {
        let reply = match answer(&line?, &mut databases, &workload) {
            Ok(samples) => Reply::Samples(samples),
            Err(error) => Reply::Failed(error.to_string()),
        };
        let mut output = stdout().lock();
        serde_json::to_writer(&mut output, &reply)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
    databases.close()
}

fn answer(line: &str, databases: &mut Databases, workload: &Workload) -> Result<Vec<Sample>> {
    let (phase, round) = line.split_once(' ').ok_or("a line is `PHASE ROUND`")?;
    phases::run(Phase::from_str(phase, false)?, round.parse()?, databases, workload)
}
