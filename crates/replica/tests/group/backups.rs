//! Backup, restore, and recovery after the loss of a majority.

