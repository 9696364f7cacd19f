"""The npm package busmq, run by Node.js on scripts of our own that do what our side does."""
