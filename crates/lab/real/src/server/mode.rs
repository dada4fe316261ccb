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
    /// Its name on the command line and in `/mode?set=`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Normal => "normal",
            Mode::HangWork => "hang-work",
            Mode::FailHealth => "fail-health",
            Mode::FailWork => "fail-work",
        }
    }
}
