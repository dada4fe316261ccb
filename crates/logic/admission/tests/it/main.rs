//! One ingress in front of one simulated application.

mod adaptive;
mod backend;
mod deadline;
mod decide;
mod no_allocation;
mod page;
