package util

// Nothing belongs here.
