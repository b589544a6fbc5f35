//! The client with a server that the test plays.
