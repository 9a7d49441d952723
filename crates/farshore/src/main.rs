use std::process::ExitCode;

fn main() -> ExitCode {
    farshore::cmd::main()
}
