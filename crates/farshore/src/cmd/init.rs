//! `init`: a first configuration from two words, and on request a secret where certificates are not needed.

use std::io::Write;
use std::path::Path;

use settings::example::{InitSide, InitTrust, first_config, leaves_this_machine};
use settings::{Config, create_secret};

use crate::args::InitArgs;
use crate::args::reach::DEFAULT_CONFIG;
use crate::outcome::{CommandFailure, CommandOutcome, Exit, print};

pub fn run(args: &InitArgs) -> CommandOutcome {
    let side = |flag: &str, text: &str, node| {
        InitSide::parse(text, node).map_err(|reason| CommandFailure::usage(format!("--{flag}: {reason}")))
    };
    let (near, far) = (side("near", &args.near, "alpha")?, side("far", &args.far, "beta")?);
    if near.node == far.node {
        let advice =
            "name them, as in --near alpha=10.0.0.1:/dev/disk/by-id/DISK --far beta=10.0.0.2:/dev/disk/by-id/DISK";
        return Err(CommandFailure::usage(format!("both sides are called {:?}; {advice}", near.node)));
    }
    let trust = trust(args, &near, &far)?;
    let text = first_config(&near, &far, trust);
    let file = args.out.as_deref().unwrap_or(Path::new(DEFAULT_CONFIG));
    // Two sides can be sound each and not together: the same address, the same device on one machine.
    Config::parse(file, &text)?;
    if args.create_secret {
        super::inputs::forbid_core_dumps()?;
        create_secret(&args.secret_file)?;
    }
    let written = match &args.out {
        None => print(&text).map(drop),
        Some(file) => write_new(file, &text),
    };
    if let Err(failure) = written {
        if args.create_secret {
            // Nothing is left half done: the next try would find a secret that no configuration speaks of.
            let _ = std::fs::remove_file(&args.secret_file);
        }
        return Err(failure);
    }
    if let Some(file) = &args.out {
        print(&next_steps(args, file, &near, &far))?;
    }
    Ok(Exit::Done.into())
}

fn write_new(file: &Path, text: &str) -> Result<(), CommandFailure> {
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .and_then(|mut created| created.write_all(text.as_bytes()).and_then(|()| created.sync_all()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => format!("{} exists already; it was left as it is", file.display()).into(),
        _ => format!("{} cannot be written: {error}", file.display()).into(),
    })
}

/// Certificates, unless the nodes share a machine.
fn trust<'a>(args: &'a InitArgs, near: &InitSide, far: &InitSide) -> Result<InitTrust<'a>, CommandFailure> {
    if leaves_this_machine(near, far) {
        if args.create_secret {
            return Err(CommandFailure::usage(
                "--create-secret: these nodes know each other by certificates ('farshore cert init'), not by a secret; \
                 leave it out",
            ));
        }
        return Ok(InitTrust::Certificates { directory: text_of("--tls-directory", &args.tls_directory)? });
    }
    Ok(InitTrust::Secret { file: text_of("--secret-file", &args.secret_file)? })
}

/// A path that can stand in the file.
fn text_of<'a>(flag: &str, path: &'a Path) -> Result<&'a str, CommandFailure> {
    let text = path.to_str().ok_or_else(|| CommandFailure::usage(format!("{flag}: the path is not text")))?;
    if text.contains(['"', '\\']) || text.chars().any(char::is_control) {
        return Err(CommandFailure::usage(format!("{flag}: the path holds quotes or control characters")));
    }
    Ok(text)
}

fn next_steps(args: &InitArgs, file: &Path, near: &InitSide, far: &InitSide) -> String {
    let file = file.display();
    let (make, copy) = if leaves_this_machine(near, far) {
        let directory = args.tls_directory.display();
        let (near, far) = (&near.node, &far.node);
        let option = if args.out.as_deref() == Some(Path::new(DEFAULT_CONFIG)) {
            String::new()
        } else {
            format!(" --config {file}")
        };
        (
            format!(
                "here: farshore cert init{option}; farshore cert node {near}{option}; farshore cert node {far}{option}"
            ),
            format!(
                "copy to {far}, to the same places: {file}, {directory}/ca.crt, {directory}/nodes/{far}.crt and \
                 {directory}/nodes/{far}.key (mode 0600)"
            ),
        )
    } else {
        let secret = args.secret_file.display();
        let made = match args.create_secret {
            true => format!("{secret} was made with new random content"),
            false => format!("make the secret: (umask 077; head -c 32 /dev/urandom | base64 > {secret})"),
        };
        (made, format!("copy {file} and {secret} (mode 0600) to both nodes"))
    };
    let drawn: Vec<_> = [near, far].into_iter().filter(|side| side.has_drawn_name()).collect();
    let names = drawn.iter().map(|side| {
        format!(
            "{} of {} may be another disk after a reboot: before step 3 write the name that stays with it instead ('ls -l \
             /dev/disk/by-id' there)\n",
            side.device, side.node
        )
    });
    let names: String = names.collect();
    format!(
        "{file} was written. Next:\n  1. {make}\n  2. {copy}\n  \
         3. on each: farshore config check {file} --node NAME\n  \
         4. on {}: farshore serve --config {file} --node {}\n  5. on {}: farshore serve --config {file} --node {}\n{names}",
        near.address.ip(),
        near.node,
        far.address.ip(),
        far.node,
    )
}
