//! Reads and writes of every kind, of real files, pipes and sockets.
