"""`shardwise launch`: starts and watches the processes of a program, on one machine or several."""
