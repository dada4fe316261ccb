use std::io::BufRead;
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;

/// How the server behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// It works and is healthy.
    #[default]
    Normal,
    /// Requests for work are never answered; health checks are, well.
    HangWork,
    /// Work is done; health checks are answered with 503.
    FailHealth,
    /// Requests for work are answered with 500 at once; health checks well.
    FailWork,
}

impl Mode {
    /// Its name on the command line and on standard input.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Normal => "normal",
            Mode::HangWork => "hang-work",
            Mode::FailHealth => "fail-health",
            Mode::FailWork => "fail-work",
        }
    }
}

/// How the server behaves now: changed from outside its queues, so that it takes effect at once however long
/// those are.
#[derive(Clone, Debug, Default)]
pub struct Behaviour(Arc<Mutex<Mode>>);

impl Behaviour {
    /// This one at first.
    pub fn new(mode: Mode) -> Self {
        Behaviour(Arc::new(Mutex::new(mode)))
    }

    /// What it is now.
    pub fn mode(&self) -> Mode {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes names of modes, a line each, until there are no more; returns the first that is none.
    pub fn follow(&self, input: impl BufRead) -> Option<String> {
        for line in input.lines().map_while(Result::ok) {
            match Mode::from_str(line.trim(), false) {
                Ok(mode) => *self.0.lock().unwrap_or_else(PoisonError::into_inner) = mode,
                Err(_) => return Some(line),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaviour_follows_its_input_up_to_what_is_no_mode() {
        let behaviour = Behaviour::new(Mode::FailHealth);
        assert_eq!(behaviour.follow(&b""[..]), None);
        assert_eq!(behaviour.mode(), Mode::FailHealth);
        assert_eq!(behaviour.follow(&b"normal\nhang-work\n"[..]), None);
        assert_eq!(behaviour.mode(), Mode::HangWork);
        assert_eq!(behaviour.follow(&b"fail-work\nsulk\nnormal\n"[..]).as_deref(), Some("sulk"));
        assert_eq!(behaviour.mode(), Mode::FailWork);
    }
}
