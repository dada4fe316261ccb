//! Programs weights into balancers.
