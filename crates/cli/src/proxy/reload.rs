//! `plimsoll proxy reload` and `release`: a running proxy reads its configuration again, or goes back to the weights in
//! it.

use std::process::ExitCode;

use super::{Asked, failed};

/// Have the proxy read its configuration again; as SIGHUP does, and says what is wrong
#[derive(clap::Args, Debug)]
pub struct ReloadArgs {
    #[command(flatten)]
    asked: Asked,
}

/// Give a pool its configured weights again, in place of a controller's
#[derive(clap::Args, Debug)]
pub struct ReleaseArgs {
    #[command(flatten)]
    asked: Asked,
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
}

/// Asks for a reload.
pub fn reload(args: &ReloadArgs) -> ExitCode {
    match args.asked.socket().map(|socket| plimsoll_proxy::reload(&socket)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => failed(&error),
        Err(code) => code,
    }
}

/// Asks for the configured weights.
pub fn release(args: &ReleaseArgs) -> ExitCode {
    match args.asked.socket().map(|socket| plimsoll_proxy::release(&socket, &args.pool)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => failed(&error),
        Err(code) => code,
    }
}
