//! `payferry completions` and `payferry man`, generated from the command line's definition.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use super::Cli;

/// Options of `completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry completions bash > /etc/bash_completion.d/payferry
  payferry completions zsh > /usr/local/share/zsh/site-functions/_payferry
  payferry completions fish > ~/.config/fish/completions/payferry.fish")]
pub(super) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Options of `man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  payferry man | man --local-file -
  payferry man --out /usr/local/share/man/man1")]
pub(super) struct ManArgs {
    /// Folder for one page per command; it is created if it does not exist.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

pub(super) fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    // It panics if its output ends early, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "payferry", &mut script);
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    // The pages replace the subcommand `help`.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    match &args.out {
        Some(folder) => {
            std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
            clap_mangen::generate_to(command, folder)
                .with_context(|| format!("cannot write into {}", folder.display()))?;
        }
        None => Man::new(command).render(&mut io::stdout())?,
    }
    Ok(ExitCode::SUCCESS)
}
