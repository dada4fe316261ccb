//! A real application for the lab: WordPress on php-fpm behind nginx, in control groups with quotas, and one
//! MariaDB. Everything lies in one directory, the database and its socket included: [`up`] makes it,
//! [`down`] removes it, [`Site`] runs it for as long as it is held. Nothing of the system's own servers is touched.
//!
//! ```text
//! site.rs       what is missing, making and removing the directory, the database
//! instances.rs  servers in control groups, their CPU
//! requests.rs   five GETs and five POSTs, and what each costs
//! command.rs    plimsoll-lab wordpress up | serve | down
//! ```

mod command;
mod instances;
mod requests;
mod site;

pub use command::{Args, run};
pub use instances::Instances;
pub use requests::{Cost, FORM, GET, costs, gets, posts};
pub use site::{Site, WordPressError, check_place, down, is_free, missing, up};
