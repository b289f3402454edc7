//! Plays faults of forwarders, and is the forwarder that they happen to.

use clap::{Parser, Subcommand};
use tidegate_forward_faults::{Scene, SceneLength, WorkerArguments, work};

/// Forwarders as real processes under faults: the long versions of the tests.
#[derive(Debug, Parser)]
#[command(version)]
struct FaultsCommand {
    /// The scenes to play; all of them unless given.
    #[arg(value_enum)]
    scenes: Vec<Scene>,
    /// The seed of the faults. The same seed makes the same choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Plays the versions that the tests play, in seconds instead of minutes.
    #[arg(long)]
    short: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// A forwarder for the scenes to kill.
    #[command(hide = true)]
    Worker(WorkerArguments),
}

fn main() -> anyhow::Result<()> {
    let command = FaultsCommand::parse();
    if let Some(Role::Worker(arguments)) = command.role {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        return runtime.block_on(work(arguments));
    }
    let length = if command.short { SceneLength::Short } else { SceneLength::Long };
    let program = std::env::current_exe()?;
    let scenes = if command.scenes.is_empty() { Scene::ALL.to_vec() } else { command.scenes };
    for scene in scenes {
        println!("{scene}, seed {}: {}", command.seed, scene.play(&program, length, command.seed));
    }
    Ok(())
}
