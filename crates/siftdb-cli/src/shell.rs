//! `siftdb completions SHELL` and `siftdb man [DIR]`: what a shell and the program `man` read about
//! the command. Both are made from the arguments of the command, so they have all of them.

use crate::described::{help, result};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Shown};
use crate::topics::topics;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

result! {
    /// Examples:
    ///   siftdb completions bash > ~/.local/share/bash-completion/completions/siftdb
    ///   siftdb completions zsh > ~/.zfunc/_siftdb       with ~/.zfunc in fpath
    ///   siftdb completions fish > ~/.config/fish/completions/siftdb.fish
    struct Script {
        /// the shell
        shell: String;
        /// the script
        text: String;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Script>())]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints the script; `root` is the whole command.
    pub fn run(self, output: Output, root: &Command) -> Outcome<Shown> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut root.clone(), "siftdb", &mut script);
        let text = String::from_utf8_lossy(&script).into_owned();
        let result = Script { shell: self.shell.to_string(), text };
        output.show_whole(&result, |out| out.write_all(&script))
    }
}

result! {
    /// Examples:
    ///   siftdb man | man -l -
    ///   siftdb man ~/.local/share/man/man1
    struct Pages {
        /// the page of siftdb, or all that were written:
        pages: Vec<Page>;
    }

    struct Page {
        /// the name of its file
        page: String;
        /// its contents, for roff
        text: String;
    }
}

#[derive(Args)]
#[command(after_long_help = help::<Pages>())]
pub struct ManPages {
    /// Write a page for each command into this directory, instead of printing the first
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl ManPages {
    /// Prints or writes the pages; `root` is the whole command, at a width that depends on no
    /// terminal.
    pub fn run(self, output: Output, root: &Command) -> Outcome<Shown> {
        let mut root = root.clone();
        // Names the pages of subcommands after the whole path, such as siftdb-filter-stats.
        root.build();
        let mut pages = Vec::new();
        let unwritten = |source| Failure::io(Path::new("a page"), source);
        render(&root, true, &mut pages).map_err(unwritten)?;
        let Some(directory) = &self.directory else {
            pages.truncate(1);
            let result = Pages { pages };
            let mut texts = result.pages.iter().map(|page| &page.text);
            return output
                .show_whole(&result, |out| texts.try_for_each(|text| write!(out, "{text}")));
        };
        for Page { page, text } in &pages {
            write_page(&directory.join(page), text)?;
        }
        output.show_json(&Pages { pages })
    }
}

#[expect(clippy::disallowed_methods, reason = "the user's own file, no part of a database")]
fn write_page(path: &Path, text: &str) -> Outcome {
    let advice = "make the directory, or name another";
    std::fs::write(path, text).map_err(|source| Failure::unwritable(path, source, advice))
}

/// The pages of `command` and of its subcommands, by file name.
fn render(command: &Command, is_root: bool, pages: &mut Vec<Page>) -> io::Result<()> {
    let page = Man::new(command.clone());
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    let more = command.get_after_long_help().map(|more| more.to_string());
    if let Some(more) = more.filter(|_| !is_root) {
        section("more", &more, &mut text)?;
    }
    for topic in topics().iter().filter(|_| is_root) {
        section(&topic.name, &topic.text, &mut text)?;
    }
    let text = without_repeats(&String::from_utf8_lossy(&text));
    pages.push(Page { page: page.get_filename(), text });
    command.get_subcommands().try_for_each(|command| render(command, false, pages))
}

/// The page with the definitions of roff's quotes once; each part of the page begins with them.
fn without_repeats(page: &str) -> String {
    let is_definition = |line: &str| line.starts_with(".ie") || line.starts_with(".el");
    let lines = page.lines().enumerate();
    let kept = lines.filter(|(at, line)| *at < 2 || !is_definition(line));
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

/// A section of lines that stay as they are.
fn section(name: &str, lines: &str, out: &mut Vec<u8>) -> io::Result<()> {
    writeln!(out, ".SH {}\n.nf", name.to_uppercase())?;
    for line in lines.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        // A dot or quote would begin a request of roff.
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        writeln!(out, "{guard}{line}")?;
    }
    writeln!(out, ".fi")
}
