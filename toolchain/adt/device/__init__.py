"""One device over ADB: choosing it, commands and files, deploying and running."""
