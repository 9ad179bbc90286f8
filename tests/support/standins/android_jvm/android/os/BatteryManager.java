// STAND-IN, not Android: as much of it as the benchmark needs, on a JVM.
package android.os;

public class BatteryManager {
    public static final int BATTERY_PROPERTY_CHARGE_COUNTER = 1;
    public static final int BATTERY_PROPERTY_CURRENT_NOW = 2;
    public static final String EXTRA_TEMPERATURE = "temperature";
    public static final String EXTRA_VOLTAGE = "voltage";

    /** The charge counter is one that this device does not have. */
    public int getIntProperty(int id) {
        return id == BATTERY_PROPERTY_CURRENT_NOW ? -420000 : Integer.MIN_VALUE;
    }
}
