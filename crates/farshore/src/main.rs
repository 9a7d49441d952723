use std::process::ExitCode;

fn main() -> ExitCode {
    farshore::breakdown::told(farshore::cmd::main)
}
