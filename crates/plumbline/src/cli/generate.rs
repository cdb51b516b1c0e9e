//! `plumbline generate`: makes man pages and completions from the definitions of `--help`. `make install` runs it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

#[derive(clap::Args)]
pub struct GenerateArguments {
    /// Where man/, bash-completion/, zsh/ and fish/ go: a prefix's share/
    directory: PathBuf,
}

pub fn run(arguments: &GenerateArguments, mut command: Command) -> Result<ExitCode> {
    let below = |folder: &str| {
        let path = arguments.directory.join(folder);
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        anyhow::Ok(path)
    };
    let name = command.get_name().to_owned();
    command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command.clone(), below("man/man1")?).context("cannot write man pages")?;
    let shells = [
        (Shell::Bash, "bash-completion/completions", name.clone()),
        (Shell::Zsh, "zsh/site-functions", format!("_{name}")),
        (Shell::Fish, "fish/vendor_completions.d", format!("{name}.fish")),
    ];
    for (shell, folder, file) in shells {
        let path = below(folder)?.join(file);
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command, &name, &mut script);
        write(&path, &script)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &[u8]) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    #[test]
    fn each_command_that_is_shown_has_a_man_page_and_completions() {
        let directory = tempfile::tempdir().unwrap();
        run(&GenerateArguments { directory: directory.path().to_owned() }, command()).unwrap();
        let bash = fs::read_to_string(directory.path().join("bash-completion/completions/plumbline")).unwrap();
        for shown in command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = shown.get_name();
            let page = fs::read_to_string(directory.path().join(format!("man/man1/plumbline-{name}.1"))).unwrap();
            assert!(page.contains(".SH OPTIONS") && bash.contains(name), "{name}");
        }
        assert!(directory.path().join("zsh/site-functions/_plumbline").exists());
        assert!(directory.path().join("fish/vendor_completions.d/plumbline.fish").exists());
    }
}
